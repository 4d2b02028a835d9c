#pragma once
// A rank's replayed allocator as a memory snapshot of PyTorch: what torch.cuda.memory._dump_snapshot() writes, and pytorch.org/memory_viz
// and torch/cuda/_memory_viz.py read (fields: torch/csrc/cuda/Module.cpp, THCPModule_memorySnapshot).

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "simulator/memory/allocator_history.hpp"

namespace mgplan::reports {

/// Events of a whole replay that a snapshot holds; of a longer one it holds the fullest iteration.
inline constexpr std::size_t kMostSnapshotEvents = 200'000;

/// The rank of a snapshot and the parts of its replay that the snapshot holds.
struct SnapshotSummary {
    std::int64_t rank = 0;  ///< global
    int stage = 0;
    std::size_t first_part = 0;        ///< index in ReplayRecord::parts; the earlier ones are left out
    std::size_t parts = 0;             ///< of the whole replay: the setup and its iterations
    std::size_t events = 0;            ///< of the snapshot
    std::int64_t requested_bytes = 0;  ///< the largest sum of the tensors' bytes, at which the viewer's curve has its peak
    simulator::ReservedMemory memory;
    std::int64_t microbatches = 0, played_microbatches = 0;  ///< of an iteration, and of those that the snapshot holds
    std::int64_t offloaded_bytes = 0;                        ///< AllocatorHistory::offloaded_bytes
    std::string file;                                        ///< to which it is written
};

/// `history`: with events.
[[nodiscard]] SnapshotSummary summary_of(const simulator::AllocatorHistory& history, std::int64_t rank, int stage,
                                         std::int64_t microbatches);

/// Writes the pickle. Blocks have the bytes that the tensors requested, as PyTorch records them. Frames say what a block is: its module and
/// tensor (or its buffer and parameter), its pass, its iteration. Times count events. Segments: as they are after the last iteration.
void write_memory_snapshot(std::ostream& out, const simulator::AllocatorHistory& history, const SnapshotSummary& summary);

[[nodiscard]] nlohmann::ordered_json snapshot_to_json(const SnapshotSummary& summary);
/// Lines for people.
[[nodiscard]] std::string snapshot_text(const SnapshotSummary& summary);

}  // namespace mgplan::reports
