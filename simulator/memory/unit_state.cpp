#include "simulator/memory/unit_state.hpp"

#include <algorithm>
#include <map>

namespace mgplan::simulator {
namespace {

/// Bytes of a unit: whole, and of what its reduction gives this rank.
struct UnitBytes {
    std::int64_t whole = 0, sum = 0;
};
using Units = std::map<int, UnitBytes>;

/// The largest unit, or the largest two in a row.
std::int64_t most_gathered(const Units& units, bool ahead) {
    std::int64_t most = 0, before = 0;
    for (const auto& [number, bytes] : units) {
        most = std::max(most, bytes.whole + (ahead ? before : 0));
        before = bytes.whole;
    }
    return most;
}

/// A backward goes from the last unit to the first: a unit's gradients, beside them with overlap those of the unit before and their sum;
/// and each with its own sum when it is reduced.
std::int64_t most_reduced(const Units& units, bool overlaps) {
    std::int64_t most = 0, before = 0;
    for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
        const UnitBytes& bytes = unit->second;
        most = std::max({most, bytes.whole + bytes.sum, bytes.whole + (overlaps ? before : 0)});
        before = bytes.whole + bytes.sum;
    }
    return most;
}

}  // namespace

UnitState unit_state_bytes(std::span<const model::BufferParameter> parameters, const model::BufferOptions& options,
                           const TrainingSpec& training) {
    const bool shards_parameters = training.megatron.fully_sharded.shards_parameters();
    UnitState state;
    Units gathered, reduced;
    for (const model::BufferLayout& buffer : model::lay_out_buffers(parameters, options).buffers) {
        ModelStateBytes bytes = model_state_bytes({.parameters = 0, .buffer = buffer.numel, .shards = buffer.dp}, Engine::mgplan, training);
        if (buffer.dp > 1) {
            const std::int64_t parameter = bytes.parameters / buffer.numel, gradient = bytes.gradients / buffer.numel;
            if (shards_parameters) bytes.parameters /= buffer.dp;
            bytes.gradients /= buffer.dp;
            for (const model::Bucket& bucket : buffer.buckets) {
                const std::int32_t first = buffer.spans[static_cast<std::size_t>(bucket.first_span)].parameter;
                const int unit = parameters[static_cast<std::size_t>(first)].unit;
                const std::int64_t numel = bucket.end - bucket.start;
                if (shards_parameters) gathered[unit].whole += numel * parameter;
                reduced[unit].whole += numel * gradient;
                reduced[unit].sum += numel / buffer.dp * gradient;
            }
        }
        state.held += bytes;
    }
    state.gathered = most_gathered(gathered, training.overlap_param_gather);
    state.reduced = most_reduced(reduced, training.overlap_grad_reduce);
    return state;
}

}  // namespace mgplan::simulator
