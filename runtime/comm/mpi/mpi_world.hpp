#pragma once
// Ranks as processes that MPI connects. Declared in every build; where MPI was not found at configuration, the constructor
// throws and says how to get it.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/communicator.hpp"
#include "model/communicator/world.hpp"

namespace mgplan::runtime {

struct MpiOptions {
    /// A rank that waits longer than this for others says so on stderr and ends its process with code 4, whereupon the
    /// launcher ends the others. Longer than the slowest computation between two collectives.
    std::optional<std::chrono::milliseconds> deadline;
    /// Number of ranks that the launcher's variables give: another number is a ConfigError with this name and a way out (a launcher
    /// and an MPI that do not support each other start many worlds of one rank).
    std::optional<int> expected_size;
    std::string expected_by = "the launcher";
    std::string way_out = "use mpirun of the same MPI, or srun --mpi=pmix with an Open MPI that has PMIx";
    /// Say on stderr in which operation this rank was when the launcher stops it (SIGTERM), as it does when another dies.
    bool report_when_stopped = true;
};

/// This process's rank in MPI's world. One object per process, used by one thread; it starts MPI, and ends it in its
/// destructor, when all ranks have come there. What its communicators promise:
/// - Sums are made in the order MPI chooses, so bits may differ between MPI libraries and group sizes, but not between the
///   ranks of a group. Types as in reduce.hpp; bf16 is added in fp32 and rounded once. At most 2^31 - 1 bytes a call
///   (elements, for reductions): more throws.
/// - Collectives run inside MPI calls: a started one moves on while any operation of this rank waits.
/// - Members of a group must issue its operations in the same order with the same sizes (InProcessWorld checks it).
/// - send() copies the message and never waits, as in InProcessWorld.
/// - abort(), and a rank that dies, end all ranks: the caller's message is printed once on stderr, and MPI_Abort is called
///   with code 4. The other ranks do not throw; the launcher stops them (mpirun within about 1 s).
/// A destructor of a Pending does not wait when an exception is under way: after an error only abort() is left.
class MpiWorld {
public:
    explicit MpiWorld(MpiOptions options = {});
    ~MpiWorld();
    MpiWorld(const MpiWorld&) = delete;
    MpiWorld& operator=(const MpiWorld&) = delete;

    [[nodiscard]] int rank() const;
    [[nodiscard]] int size() const;

    /// As model::JoinGroup says; waits for the other members. Throws CommunicationError if members pass different names or lists.
    [[nodiscard]] std::unique_ptr<model::Communicator> join(const std::string& group, std::span<const std::int32_t> ranks);
    /// This world as the transport-independent type; must not outlive this object.
    [[nodiscard]] model::World view();

    /// The text of every rank on rank 0, each cut at 255 bytes; nothing elsewhere. All ranks call it; no counter sees it.
    [[nodiscard]] std::vector<std::string> gather_names(const std::string& mine);

    /// Runs the body; when it throws, aborts with "rank 3 failed: <what>; after all_reduce in group tp (ranks 2, 3)", with
    /// code 2 for a ConfigError.
    void run(const std::function<void()>& body);
    /// Prints "mgplan: <reason>" and ends all ranks, with code 4 unless another is given.
    void abort(const std::string& reason, int code = 4) noexcept;

    /// Traffic of this rank's communicators, counted at each operation.
    [[nodiscard]] model::CollectiveCounter& traffic();

    struct State;

private:
    std::shared_ptr<State> state_;
};

/// Returns true if this build has MPI.
[[nodiscard]] bool mpi_available();

}  // namespace mgplan::runtime
