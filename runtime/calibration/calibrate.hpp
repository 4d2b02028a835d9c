#pragma once
// Measures a device and the ranks' links for a cluster file. Values that the file holds already are not measured again, so that
// an interrupted calibration resumes.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/communicator/world.hpp"
#include "model/device/device.hpp"
#include "plan/cluster/cluster_calibration.hpp"
#include "plan/layout/rank_groups.hpp"
#include "runtime/calibration/traced_work.hpp"
#include "runtime/rendezvous/rendezvous.hpp"
#include "runtime/training_run/rank_devices.hpp"

namespace mgplan::runtime {

/// One line for standard error, "product 4096 x 4096 x 512 bf16: 1.2 ms, 71.3 TFLOP/s", and the measurements done out of all.
struct CalibrationProgress {
    std::string text;
    std::size_t done = 0;
    std::size_t all = 0;
};

struct CalibrateOptions {
    TracedWork work;
    std::vector<Dtype> dtypes;  ///< of memory-bound kernels
    double seconds = 0.5;       ///< for each measurement
    /// Machine of each rank, numbered from 0, for the number of nodes of groups; empty: all on one.
    std::vector<int> node_of_rank;
    /// Skips and reports a measurement if one call would take longer than this many times `seconds`, by the best rate so far.
    double patience = 20;
    std::int64_t memory_bytes = 0;  ///< free on the device; a measurement that needs more than half of it is skipped and reported
    std::int64_t most_bytes = std::int64_t{256} << 20;  ///< of memory-bound kernels, copies and collectives
    const std::atomic<bool>* interrupt = nullptr;
    /// Called after each measurement, with all results so far.
    std::function<void(const ClusterCalibration&, const CalibrationProgress&)> on_measured;
    std::function<void(const std::string&)> on_left_out;
};

/// How the device names itself to a cluster file: "NVIDIA H200", "AMD EPYC … (16 processors)".
[[nodiscard]] std::string hardware_name(const RankDevices& devices);

/// Measures products, attention, memory-bound kernels, copies and launches on the device and adds them to `into`. Returns false
/// when it was interrupted.
[[nodiscard]] bool measure_device(model::Device& device, const CalibrateOptions& options, ClusterCalibration& into);

/// Measures the device memory of graphs of some sizes, instantiated some at a time and all held, with the device's free
/// memory read before and after. Adds nothing on a device that captures nothing or does not report its free memory. Other users of
/// the device's memory falsify the result. Returns false when it was interrupted.
[[nodiscard]] bool measure_graphs(RankDevice& device, const CalibrateOptions& options, ClusterCalibration& into);

/// One group to measure, by name, with the lists of all its instances: every rank of the world is in exactly one of them.
struct MeasuredGroup {
    std::string name;
    std::vector<std::vector<std::int32_t>> ranks;
};

/// The groups of a layout that move data, one of each name and at least two ranks; without a layout: contiguous groups of 2, 4 …
/// ranks, named world for all of them and world/N for fewer.
[[nodiscard]] std::vector<MeasuredGroup> groups_of(const ParallelSizes& sizes);
[[nodiscard]] std::vector<MeasuredGroup> groups_of(std::int64_t world);

/// Measures collectives of one rank's groups over a list of sizes; all ranks call it together with equal options, and all instances of a
/// group communicate at once, as in a training step. nccl-tests' method: a barrier, some operations without a pause, their time
/// over their number, the ranks' average. Values in rank 0's `into` are not measured again; callbacks are called there. Returns false
/// when rank 0 was interrupted.
[[nodiscard]] bool measure_collectives(const model::World& world, model::Device& device, const std::vector<MeasuredGroup>& groups,
                                       const CalibrateOptions& options, ClusterCalibration& into);

/// Calibrates as one rank of a job, a process with a GPU of its own: rank 0 measures its device, then all ranks the collectives, over
/// NCCL. `meeting` and exceptions: as run_over_nccl(). `on_stuck`: as TrainingRunOptions::on_stuck.
[[nodiscard]] bool calibrate_over_nccl(const RankDevices& devices, const RendezvousOptions& meeting,
                                       const std::function<void(const std::string&)>& on_stuck, const std::vector<MeasuredGroup>& groups,
                                       const CalibrateOptions& options, ClusterCalibration& into);

}  // namespace mgplan::runtime
