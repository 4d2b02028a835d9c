#include "simulator/memory/split_stages.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "model/pipeline/send_depth.hpp"

namespace mgplan::simulator {
namespace {

/// Sizes of a layout that determine which states can be the peak.
struct Passes {
    int pp, vpp;
    std::int64_t microbatches, group;

    explicit Passes(const Layout& layout)
        : pp(static_cast<int>(layout.sizes.pp)),
          vpp(layout.vpp),
          microbatches(0),
          group(layout.vpp > 1 ? layout.group_size : layout.sizes.pp) {
        microbatches = enough_microbatches(pp, vpp, layout.num_microbatches, group);
    }
};

int rank_like(const SplitChunks& chunks, int rank, const StageSplit& split) {
    const auto of = [&](int one) { return chunks.kind.begin() + static_cast<std::ptrdiff_t>(one) * split.vpp(); };
    for (int other = 1; other < rank && rank + 1 < split.pp(); ++other) {
        if (chunks.like[static_cast<std::size_t>(other)] == other && std::equal(of(other), of(other) + split.vpp(), of(rank))) return other;
    }
    return rank;
}

/// Adds a state unless another one covers it (same op, no fewer live microbatches of any kind); removes states that it covers.
void add_instant(StageInstants& stage, const std::vector<std::int32_t>& instant) {
    const auto width = static_cast<std::ptrdiff_t>(stage.width());
    const auto no_fuller = [&](auto a, auto b) {
        return a[0] == b[0] && a[1] == b[1] && std::equal(a + 2, a + width, b + 2, [](std::int32_t x, std::int32_t y) { return x <= y; });
    };
    for (auto known = stage.table.begin(); known != stage.table.end();) {
        if (no_fuller(instant.begin(), known)) return;
        known = no_fuller(known, instant.begin()) ? stage.table.erase(known, known + width) : known + width;
    }
    stage.table.insert(stage.table.end(), instant.begin(), instant.end());
}

}  // namespace

const SplitCensus& SplitStages::census(const Layout& layout) {
    auto [entry, fresh] = censuses_.try_emplace(layout.split.get());
    if (fresh) entry->second = take_census(kinds_, layout.split);
    return entry->second;
}

int SplitStages::number_of(ChunkContents asked) {
    const auto number = std::find(contents_.begin(), contents_.end(), asked) - contents_.begin();
    if (number == std::ssize(contents_)) {
        std::uint64_t kinds = 0;
        for (const std::uint16_t kind : asked.layers) kinds |= std::uint64_t{1} << kind;
        layer_kinds_.push_back(kinds);
        contents_.push_back(std::move(asked));
    }
    return static_cast<int>(number);
}

const SplitChunks& SplitStages::chunks(const Layout& layout) {
    auto [entry, fresh] = splits_.try_emplace(layout.split.get());
    if (!fresh) return entry->second;
    SplitChunks& chunks = entry->second;
    chunks.split = layout.split;
    for (int rank = 0; rank < layout.split->pp(); ++rank) {
        std::int64_t predictions = 0;
        for (int c = 0; c < layout.split->vpp(); ++c) predictions = std::max(predictions, layout.split->chunk(rank, c).mtp);
        for (int c = 0; c < layout.split->vpp(); ++c) {
            const StageChunk& chunk = layout.split->chunk(rank, c);
            ChunkContents held{chunk.embedding, chunk.loss, {}, chunk.mtp};
            for (std::int64_t i = 0; i < chunk.decoders; ++i)
                held.layers.push_back(kinds_.without_window[kinds_.of_layer[static_cast<std::size_t>(chunk.first_decoder + i)]]);
            held.further_ids = predictions;
            held.mtp_layer = chunk.mtp > 0 ? kinds_.without_window[kinds_.of_prediction] : std::uint16_t{0};
            chunks.kind.push_back(number_of(std::move(held)));
        }
    }
    for (const int number : chunks.kind) {
        if (std::find(chunks.distinct.begin(), chunks.distinct.end(), number) == chunks.distinct.end()) chunks.distinct.push_back(number);
    }
    for (int rank = 0; rank < layout.split->pp(); ++rank) chunks.like.push_back(rank_like(chunks, rank, *layout.split));
    return chunks;
}

const ChunkRecipe& SplitStages::recipe(int number, const ChunkRecompute* full) {
    const auto same = [full](const Recipes& known) { return full == nullptr ? !known.full : known.full == *full; };
    auto found = std::find_if(recipes_.begin(), recipes_.end(), same);
    if (found == recipes_.end()) {
        recipes_.push_back({full == nullptr ? std::nullopt : std::optional(*full), {}});
        found = std::prev(recipes_.end());
    }
    if (found->of.size() < contents_.size()) found->of.resize(contents_.size());
    auto& recipe = found->of[static_cast<std::size_t>(number)];
    if (!recipe) recipe.emplace(contents(number), full);
    return *recipe;
}

std::int64_t SplitStages::open_messages(const Layout& layout, const SplitChunks& split, int pp_rank) const {
    if (layout.sizes.pp == 1) return 0;
    const model::SendDepth depth = model::send_depth(static_cast<int>(layout.sizes.pp), layout.vpp, layout.group_size, pp_rank);
    const auto first = SplitChunks::place_of(layout, pp_rank, 0), behind = first + static_cast<std::size_t>(layout.vpp);
    const auto some = [&](bool ChunkContents::*end) {
        for (std::size_t i = first; i < behind; ++i) {
            if (!(contents(split.kind[i]).*end)) return true;
        }
        return false;
    };
    return (some(&ChunkContents::loss) ? depth.forward : 0) + (some(&ChunkContents::embedding) ? depth.backward : 0);
}

const std::vector<LiveState>& SplitStages::live(const Layout& layout, int pp_rank) {
    const Passes passes(layout);
    return schedules_.live(passes.pp, passes.vpp, passes.microbatches, passes.group, pp_rank);
}

StageInstants SplitStages::instants_of_stage(const Layout& layout, const SplitChunks& split, int pp_rank) {
    const Passes passes(layout);
    StageInstants stage;
    std::vector<std::size_t> place;  // by chunk, index in stage.kinds
    for (int c = 0; c < layout.vpp; ++c) {
        const int number = split.kind[SplitChunks::place_of(layout, pp_rank, c)];
        const auto at = std::find(split.distinct.begin(), split.distinct.end(), number) - split.distinct.begin();
        const auto known = std::find(stage.kinds.begin(), stage.kinds.end(), at);
        place.push_back(static_cast<std::size_t>(known - stage.kinds.begin()));
        if (known == stage.kinds.end()) stage.kinds.push_back(static_cast<int>(at));
    }
    stage.most = most_live(passes.pp, passes.vpp, passes.microbatches, passes.group, pp_rank);
    stage.open_messages = open_messages(layout, split, pp_rank);
    if (stage.uniform()) return stage;
    std::vector<std::int32_t> instant;
    for (const LiveState& state : live(layout, pp_rank)) {
        instant.assign(stage.width(), 0);
        instant[0] = static_cast<std::int32_t>(place[static_cast<std::size_t>(std::abs(state.op) - 1)]);
        instant[1] = state.op < 0 ? 1 : 0;
        for (std::size_t c = 0; c < place.size(); ++c) instant[2 + place[c]] += state.live[c];
        add_instant(stage, instant);
    }
    return stage;
}

const std::vector<StageInstants>& SplitStages::instants(const Layout& layout, const SplitChunks& split) {
    const Passes passes(layout);
    const auto split_key = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(layout.split.get()));
    auto [entry, fresh] = instants_.try_emplace(MemoKey<3>{{split_key, passes.microbatches, passes.group}});
    if (!fresh) return entry->second;
    for (int rank = 0; rank < passes.pp; ++rank) entry->second.push_back(instants_of_stage(layout, split, rank));
    return entry->second;
}

}  // namespace mgplan::simulator
