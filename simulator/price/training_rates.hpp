#pragma once
// Rates that determine the cost of a training's ops: used by the cost model and by `verify`.

#include <cstdint>

#include "plan/cluster/cluster_spec.hpp"
#include "plan/training/training_spec.hpp"
#include "simulator/compute/kernels.hpp"

namespace mgplan::simulator {

/// Rates for op_seconds() (simulator/price/op_price.hpp). The pointers refer to a TrainingRates, which must outlive it.
struct OpRates {
    const KernelTimes* products = nullptr;  ///< for GEMMs with fp8 operands and for all other ops
    const KernelTimes* storage = nullptr;   ///< for GEMMs that stay in the storage type: head, router, unfused attention core
    const Calibration* calibration = nullptr;
    double host_bandwidth = 0;          ///< bytes per second between GPU and host, each way
    double attention_share = 1;         ///< with packed sequences: pairs of their documents divided by those of whole sequences
    std::int64_t attention_length = 0;  ///< tokens of a document, for the rate of attention; 0: not packed
};

/// Rates of a cluster's GPU for a training's precision, format and gradient dtype, and for 16 bits if that precision is quantised.
/// `calibration` must outlive it.
class TrainingRates {
public:
    TrainingRates(const ClusterSpec& cluster, const Calibration& calibration, const TrainingSpec& training);
    // The result of ops() points into it.
    TrainingRates(const TrainingRates&) = delete;
    TrainingRates& operator=(const TrainingRates&) = delete;

    [[nodiscard]] const KernelTimes& products() const { return products_; }
    [[nodiscard]] const KernelTimes& storage() const { return storage_; }
    /// For sequences that are not packed.
    [[nodiscard]] OpRates ops() const { return {&products_, &storage_, &calibration_, host_bandwidth_}; }

private:
    const Calibration& calibration_;
    KernelTimes products_, storage_;
    double host_bandwidth_;
};

}  // namespace mgplan::simulator
