#include <chrono>

#include "runtime/calibration/calibrate.hpp"
#include "runtime/launch/node_name.hpp"
#include "runtime/training_run/rendezvous_job.hpp"

namespace mgplan::runtime {
namespace {

/// For a collective; the first one sets connections up.
constexpr std::chrono::minutes kDeadline{10};

}  // namespace

bool calibrate_over_nccl(const RankDevices& devices, const RendezvousOptions& meeting,
                         const std::function<void(const std::string&)>& on_stuck, const std::vector<MeasuredGroup>& groups,
                         const CalibrateOptions& asked, ClusterCalibration& into) {
    CalibrateOptions options = asked;
    RendezvousOptions patient = meeting;
    patient.deadline = std::chrono::hours{24 * 7};  // rank 0 measures its device; one that dies is noticed by its silence
    RendezvousJob job(patient, on_stuck);
    Rendezvous& rendezvous = job.rendezvous();
    bool whole = true;
    job.run([&] {
        options.node_of_rank = node_numbers(job.gather()(node_name(process_environment())));  // on rank 0, which says them
        const std::unique_ptr<RankDevice> device = devices.make(meeting.rank, nullptr);
        try {
            rendezvous.at("the measurement of its device", "");
            if (meeting.rank == 0) {
                whole = measure_device(device->device(), options, into) && measure_graphs(*device, options, into);
                rendezvous.set("device measured", whole ? "wholly" : "interrupted");
            } else {
                whole = rendezvous.get("device measured") == "wholly";
            }
            if (whole) {
                rendezvous.at("the measurement of collectives", "");
                const std::unique_ptr<NcclWorldInterface> world = job.connect(devices, *device, kDeadline);
                whole = measure_collectives(world->view(), device->device(), groups, options, into);
            }
        } catch (const std::exception& error) {
            job.failed(error);  // before the device's destructor, which may wait for the others
            throw;
        }
        rendezvous.leave();
    });
    return whole;
}

}  // namespace mgplan::runtime
