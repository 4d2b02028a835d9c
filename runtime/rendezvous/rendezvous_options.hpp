#pragma once
// Address at which ranks meet, and the deadlines of their waits.

#include <chrono>
#include <string>

#include "runtime/launch/rank_from_environment.hpp"

namespace mgplan::runtime {

struct RendezvousOptions {
    int rank = 0;
    int size = 1;
    std::string host;       ///< of rank 0
    int port = 0;           ///< there; 0: any free one, known to the server alone
    std::string interface;  ///< "eth0": rank 0 listens there alone, others begin their connections there; empty: by `host`
    std::string secret;     ///< the same on all ranks of the job, unknown to others
    /// Until all have come.
    std::chrono::milliseconds join_deadline{std::chrono::minutes{5}};
    /// Until a value that another rank sets is there.
    std::chrono::milliseconds deadline{std::chrono::minutes{10}};
    std::chrono::milliseconds heartbeat{250};
    /// A rank that has sent nothing for this long is assumed dead.
    std::chrono::milliseconds silence{5000};
    /// From the news that the job has ended to the end of a process whose thread does not stop by itself.
    std::chrono::milliseconds patience{3000};
    /// From a connection to its hello.
    std::chrono::milliseconds hello_deadline{10'000};
};

/// Least and most bytes of a secret.
inline constexpr std::size_t kLeastSecretBytes = 16, kMostSecretBytes = 256;

/// From the variables that torchrun sets and those of our own:
///   MASTER_ADDR        rank 0's machine
///   MASTER_PORT        port there; one above where TORCHELASTIC_USE_AGENT_STORE is True, because torchrun's agent then
///                      listens at MASTER_PORT itself (PyTorch, torch/distributed/rendezvous.py)
///   MGPLAN_PORT        another port
///   MGPLAN_INTERFACE   interface by which ranks talk
///   MGPLAN_SECRET      the job's secret, 16 to 256 bytes
/// Throws ConfigError with all that is missing or wrong.
[[nodiscard]] RendezvousOptions rendezvous_options(const LaunchedRank& launched, const Environment& environment);

}  // namespace mgplan::runtime
