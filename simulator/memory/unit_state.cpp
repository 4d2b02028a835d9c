#include "simulator/memory/unit_state.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "simulator/memory/model_state.hpp"

namespace mgplan::simulator {
namespace {

/// Bytes of a unit: whole, and of this rank's part after its reduction.
struct UnitBytes {
    std::int64_t whole = 0, sum = 0;
};
using Units = std::map<int, UnitBytes>;

/// The largest unit, or the largest two adjacent units.
std::int64_t most_gathered(const Units& units, bool ahead) {
    std::int64_t most = 0, before = 0;
    for (const auto& [number, bytes] : units) {
        most = std::max(most, bytes.whole + (ahead ? before : 0));
        before = bytes.whole;
    }
    return most;
}

/// A backward goes from the last unit to the first: it holds a unit's gradients, with overlap also those of the unit before and their sum;
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
    for (const model::BufferLayout& buffer : model::buffers_of(parameters, options)) {
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

ModelStateBytes ModelStates::stage_by_units(Pieces& pieces, const Layout& layout, int pp_rank) const {
    ModelStateBytes stage;
    std::int64_t gathered = 0, reduced = 0;  // chunks take turns
    for (int c = 0; c < layout.vpp; ++c) {
        const StageChunk& chunk = layout.split->chunk(pp_rank, c);
        const Ends& ends = ends_of(pieces, layout, chunk);
        std::vector<model::BufferParameter> list;
        const auto add = [&](std::span<const model::BufferParameter> parameters, std::int64_t unit) {
            for (model::BufferParameter parameter : parameters) {
                parameter.unit = static_cast<int>(unit);
                list.push_back(parameter);
            }
        };
        add(ends.before, 0);
        for (std::int64_t i = 0; i < chunk.decoders; ++i)
            add(pieces.layers[kinds_.of_layer[static_cast<std::size_t>(chunk.first_decoder + i)]].list, 1 + i);
        add(ends.behind, 1 + chunk.decoders);
        model::BufferOptions options = model::buffer_options(layout, workload_.training, pp_rank, c);
        options.bucket_size.reset();
        const UnitState state = unit_state_bytes(list, options, workload_.training);
        stage += state.held;
        gathered = std::max(gathered, state.gathered);
        reduced = std::max(reduced, state.reduced);
    }
    stage.parameters += gathered;
    stage.gradients += reduced;
    return stage;
}

}  // namespace mgplan::simulator
