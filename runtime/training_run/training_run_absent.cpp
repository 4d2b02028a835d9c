// Built where OpenBLAS was not found, instead of the others of this folder.
#include "plan/text/errors.hpp"
#include "runtime/training_run/export_weights.hpp"
#include "runtime/training_run/rank_devices.hpp"
#include "runtime/training_run/rank_prediction.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {
namespace {

[[noreturn]] void absent() {
    throw RunError(
        "this build of mgplan makes plans and cannot run them: it has no OpenBLAS; install it (on Debian: apt-get install "
        "libopenblas-serial-dev) and build again");
}

}  // namespace

const RankDevices& cpu_devices() {
    absent();
}
model::TrainingTask with_few_microbatches(const model::TrainingTask& /*task*/) {
    absent();
}
void check_export_folder(const std::string& /*folder*/, const TrainingIdentity& /*training*/, const PublishedCheckpoint* /*read*/,
                         bool /*force*/) {
    absent();
}
bool training_available() {
    return false;
}
RunValues run_in_process(const TrainingRunOptions& /*options*/) {
    absent();
}
RunValues run_alone(const TrainingRunOptions& /*options*/, int /*rank*/) {
    absent();
}
std::optional<RunValues> run_over_nccl(const TrainingRunOptions& /*options*/, const RendezvousOptions& /*meeting*/) {
    absent();
}
std::optional<RunValues> run_over_mpi(const TrainingRunOptions& /*options*/, const LaunchedRank& /*launched*/) {
    absent();
}

}  // namespace mgplan::runtime
