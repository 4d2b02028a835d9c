#include "planner/balanced_layout.hpp"

#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "planner/constraints.hpp"
#include "planner/stage_balance.hpp"
#include "simulator/piece/stage_census.hpp"

namespace mgplan::planner {
namespace {

/// Index of the first decoder from which all decoders have the last one's kind.
std::int64_t alike_from(const LayerKinds& kinds) {
    auto from = std::ssize(kinds.of_layer);
    while (from > 0 && kinds.of_layer[static_cast<std::size_t>(from - 1)] == kinds.of_layer.back()) --from;
    return from;
}

using Contents = std::tuple<std::vector<std::int32_t>, std::int64_t, bool, bool>;

/// Everything that determines a chunk's seconds and bytes.
Contents contents_of(const LayerKinds& kinds, const StageChunk& chunk) {
    simulator::ChunkCensus counts = simulator::census_of(kinds, chunk);
    return {std::move(counts.kinds), counts.mtp, counts.embedding, counts.loss};
}

/// Memory check of one rank, in a pipeline whose other ranks hold only embedding and loss, so that they never need most.
class RankBytes {
public:
    RankBytes(simulator::CostModel& model, const Workload& workload, const LayerKinds& kinds, const Layout& layout)
        : model_(model), workload_(workload), kinds_(kinds), layout_(layout) {}

    bool fits(int pp_rank, const std::vector<StageChunk>& chunks) {
        std::pair<int, std::vector<Contents>> key{pp_rank, {}};
        for (const StageChunk& chunk : chunks) key.second.push_back(contents_of(kinds_, chunk));
        const auto [entry, fresh] = known_.try_emplace(std::move(key), false);
        if (fresh) entry->second = asked(pp_rank, chunks);
        return entry->second;
    }

private:
    bool asked(int pp_rank, const std::vector<StageChunk>& chunks) {
        const auto pp = static_cast<std::size_t>(layout_.sizes.pp);
        std::vector<StageChunk> all(pp * chunks.size());
        all.front().embedding = true;
        all.back().loss = true;
        for (std::size_t v = 0; v < chunks.size(); ++v) all[v * pp + static_cast<std::size_t>(pp_rank)] = chunks[v];
        StageSplitRequest request = layout_.split->request();
        request.vpp = layout_.vpp;
        Layout probe = layout_;
        probe.split = std::make_shared<const StageSplit>(std::move(request), SplitKind::layout_string, std::move(all));
        const simulator::LayoutPeaks peaks = model_.peaks(probe, workload_.memory_limit);
        return peaks.deciding <= workload_.memory_limit && peaks.host_missing == 0;
    }

    simulator::CostModel& model_;
    const Workload& workload_;
    const LayerKinds& kinds_;
    const Layout& layout_;
    std::map<std::pair<int, std::vector<Contents>>, bool> known_;
};

bool predicts_apart_from_loss(const StageSplit& split) {
    for (int pp = 0; pp < split.pp(); ++pp) {
        for (int vpp = 0; vpp < split.vpp(); ++vpp) {
            const StageChunk& chunk = split.chunk(pp, vpp);
            if (chunk.mtp > 0 && !chunk.loss) return true;
        }
    }
    return false;
}

}  // namespace

BalancedLayout balance_layout(simulator::CostModel& model, const Workload& workload, const Layout& layout) {
    const ModelSpec& spec = workload.model;
    BalancedLayout result{layout, model.exact_seconds(layout), 0, true, {}};
    result.seconds = result.seconds_before;
    const auto stay = [&](std::string why) {
        result.why_not = std::move(why);
        return result;
    };
    if (layout.sizes.pp == 1) return stay("pp = 1 has one stage");
    if (spec.layers > kMostBalancedLayers) return stay(fmt::format("{} layers are more than {}", spec.layers, kMostBalancedLayers));

    const LayerKinds kinds = layer_kinds(spec, workload.training.megatron);
    StageBalanceProblem problem;
    problem.layers = spec.layers;
    problem.mtp_layers = spec.mtp_layers;
    problem.pp = static_cast<int>(layout.sizes.pp);
    problem.vpp = layout.vpp;
    problem.alike_from = alike_from(kinds);
    std::map<Contents, double> known;
    problem.seconds = [&](int, const StageChunk& chunk) {
        const auto [entry, fresh] = known.try_emplace(contents_of(kinds, chunk), 0.0);
        if (fresh) entry->second = model.chunk_seconds(layout, chunk);
        return entry->second;
    };
    RankBytes bytes(model, workload, kinds, layout);
    problem.fits = [&](int pp_rank, const std::vector<StageChunk>& chunks) { return bytes.fits(pp_rank, chunks); };
    auto balanced = balance_stages(problem);
    if (!balanced)
        return stay(layout.vpp > 1 && problem.alike_from > 0 ? "no split fits whose layers are alike behind the first chunks"
                                                             : "no other split fits in memory");

    Layout candidate = layout;
    candidate.split = std::make_shared<const StageSplit>(std::move(balanced->split));
    const auto fits = [&](const Layout& asked) {
        const simulator::LayoutPeaks peaks = model.peaks(asked, workload.memory_limit);
        return peaks.deciding <= workload.memory_limit && peaks.host_missing == 0;
    };
    if (!fits(candidate)) return stay("the balanced split does not fit in memory");
    if (layout.engine == Engine::mgplan && predicts_apart_from_loss(*candidate.split))
        return stay("the balanced split predicts further tokens on another stage than the loss, which engine mgplan does not train");
    if (const std::vector<std::string> broken = broken_messages(workload, candidate); !broken.empty()) return stay(broken.front());
    const double seconds = model.exact_seconds(candidate);
    result.fitted_before = fits(layout);
    if (result.fitted_before && seconds >= result.seconds_before) return stay("the balanced one is no faster event by event");
    result.layout = std::move(candidate);
    result.seconds = seconds;
    return result;
}

}  // namespace mgplan::planner
