#pragma once
// Allocations of a rank, and the replay of PyTorch's allocator on them, event by event: values that replays produce and reports show.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/schedule/schedule.hpp"
#include "simulator/memory/memory_prediction.hpp"

namespace mgplan::simulator {

/// One allocation. Times order allocations and frees; they need not be dense.
struct Allocation {
    std::int64_t bytes = 0;
    std::int64_t taken = 0;
    std::int64_t returned = -1;  ///< -1: never freed
    bool operator==(const Allocation&) const = default;
};

/// Position of an allocation's block in its segment, in bytes.
struct BlockPlace {
    std::int64_t segment = 0, offset = 0, bytes = 0;
};

/// Events of a replay, in order.
struct ReplayRecord {
    enum class Action : std::uint8_t { take, give_back, take_segment, give_segment_back };
    struct Event {
        Action action = Action::take;
        std::size_t allocation = 0;  ///< index in its list; 0 for segments
        BlockPlace place;            ///< of a segment: offset 0
    };
    /// One replay of a list: the setup first, then the iterations.
    struct Part {
        std::size_t begin = 0;        ///< index of its first event
        std::int64_t peak_bytes = 0;  ///< the largest sum of live allocations, as requested, those of earlier parts included
    };
    std::vector<Event> events;
    std::vector<Part> parts;
    std::int64_t live_bytes = 0;  ///< as requested
};

/// Description of an allocation of a rank.
struct AllocationLabel {
    std::string tensor;              ///< or the name of a parameter
    std::string part;                ///< the module or the buffer that allocates it
    std::int64_t layer = -1;         ///< decoder layer of the model, from 0; -1 outside of them
    std::optional<PipelineOp> pass;  ///< the pass that allocates it
};

/// Allocations of a rank before its first iteration and in each one.
struct RankAllocations {
    std::vector<Allocation> setup, iteration;
    std::vector<AllocationLabel> setup_labels, iteration_labels;  ///< empty without labels
    std::int64_t microbatches = 0;                                ///< of `iteration`
};

/// One rank's replay, event by event.
struct AllocatorHistory {
    RankAllocations allocations;       ///< with labels
    ReplayRecord record;               ///< empty if the passes of an iteration have more than kMostRecorded allocations
    ReservedMemory memory;             ///< the result of the replay
    std::int64_t offloaded_bytes = 0;  ///< of activations that are on the host at the peak; the replay keeps them on the device
    /// Bytes of parameters, gradients and optimizer state: as predicted, and as megatron_setup() and megatron_moments() lay them out:
    /// for AdamW on the device, without FSDP.
    std::int64_t predicted_state = 0, replayed_state = 0;
    /// False if the replay holds more state than predicted. Less is filled up by one tensor, so that the peaks agree.
    bool as_predicted = true;
};
inline constexpr std::size_t kMostRecorded = 1'000'000;

}  // namespace mgplan::simulator
