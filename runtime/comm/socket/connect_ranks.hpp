#pragma once
// Connects each rank to each other one, once they have met at rank 0.

#include <vector>

#include "runtime/rendezvous/rendezvous.hpp"

namespace mgplan::runtime {

/// One connection to each other rank, open and not blocking; its own place is not open. All ranks call it once. Each listens at a
/// free port of the address by which it reaches rank 0 (rank 0 at that of the rendezvous), or of the interface that `meeting` names, tells
/// it by the rendezvous, and lets in who knows the job's secret. Throws ConfigError where a rank of another machine tells an address that
/// only its own machine reaches, RunError naming who did not come until meeting.join_deadline, or why the job ended.
[[nodiscard]] std::vector<Socket> connect_ranks(Rendezvous& rendezvous, const RendezvousOptions& meeting);

}  // namespace mgplan::runtime
