// Built where MPI was not found, instead of the others of this folder.
#include "runtime/comm/mpi/mpi_world.hpp"

namespace mgplan::runtime {

struct MpiWorld::State {};

namespace {

[[noreturn]] void absent() {
    throw RunError(
        "this build of mgplan has no MPI; install it (on Debian: apt-get install libopenmpi-dev openmpi-bin) and build again, or "
        "run the ranks in one process");
}

}  // namespace

bool mpi_available() {
    return false;
}

// The constructor throws, so the other members are never called.
MpiWorld::MpiWorld(MpiOptions /*options*/) {
    absent();
}
MpiWorld::~MpiWorld() = default;
int MpiWorld::rank() const {
    absent();
}
int MpiWorld::size() const {
    absent();
}
std::unique_ptr<model::Communicator> MpiWorld::join(const std::string& /*group*/, std::span<const std::int32_t> /*ranks*/) {
    absent();
}
model::World MpiWorld::view() {
    absent();
}
void MpiWorld::abort(const std::string& /*reason*/, int /*code*/) noexcept {}
model::CollectiveCounter& MpiWorld::traffic() {
    absent();
}
std::vector<std::string> MpiWorld::gather_names(const std::string& /*mine*/) {
    absent();
}
void MpiWorld::run(const std::function<void()>& /*body*/) {
    absent();
}

}  // namespace mgplan::runtime
