// Compiled only into mgplan_without_training, in place of the commands that train, start jobs, measure this machine or serve pages.
#include "cli/command.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::cli {
namespace {

[[noreturn]] void absent() {
    throw RunError(
        "this program plans and predicts only; call mgplan through ./mgplan, which builds what is missing, or build the target mgplan");
}

}  // namespace

int run_run(const std::vector<std::string>& /*args*/, Console& /*console*/) {
    absent();
}
int run_launch(const std::vector<std::string>& /*args*/, Console& /*console*/) {
    absent();
}
int run_status(const std::vector<std::string>& /*args*/, Console& /*console*/) {
    absent();
}
int run_rank(const std::vector<std::string>& /*args*/, Console& /*console*/) {
    absent();
}
int run_record(const std::vector<std::string>& /*args*/, Console& /*console*/) {
    absent();
}
int run_verify(const std::vector<std::string>& /*args*/, Console& /*console*/) {
    absent();
}
int run_serve(const std::vector<std::string>& /*args*/, Console& /*console*/) {
    absent();
}
int run_calibrate(const std::vector<std::string>& /*args*/, Console& /*console*/) {
    absent();
}

}  // namespace mgplan::cli
