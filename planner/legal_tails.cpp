#include "planner/legal_tails.hpp"

#include <algorithm>

#include "plan/layout/layout_switches.hpp"
#include "planner/switch_rules.hpp"

namespace mgplan::planner {
namespace {

/// The values of both lists in order, each once.
template <class Value>
std::vector<Value> each_once(std::vector<Value> values, const std::vector<Value>& more = {}) {
    values.insert(values.end(), more.begin(), more.end());
    std::vector<Value> kept;
    for (const Value& value : values) {
        if (std::find(kept.begin(), kept.end(), value) == kept.end()) kept.push_back(value);
    }
    return kept;
}

}  // namespace

void LayoutTail::write(Layout& layout) const {
    layout.cuda_graphs = cuda_graphs;
    layout.recompute = recompute;
    layout.recompute_modules = recompute_modules;
    layout.recompute_method = recompute_method;
    layout.recompute_num_layers = recompute_num_layers;
    if (layout.switches != *switches) layout.switches = *switches;
}

std::int64_t largest_block(const SearchSpace& space, const StageSplit& split) {
    if (!space.recompute_blocks) return 0;
    std::int64_t largest = 0, block = 0;
    for (int rank = 0; rank < split.pp(); ++rank) {
        for (int chunk = 0; chunk < split.vpp(); ++chunk) largest = std::max(largest, split.chunk(rank, chunk).decoders);
    }
    for (std::int64_t layers = 1; layers < largest; layers *= 2) block = layers;
    return block;
}

/// Enumerates all tails of one layout.
struct LegalTails::Search {
    const LegalTails& of;
    Layout layout;
    AnyBlock& found;
    std::int64_t block = 0;  ///< layers of the current tail's block
    /// By index of the space's switches: the first rule that they break without regard to recompute and graphs; null if there is none.
    std::vector<const Rule*> broken_by_switches;

    /// first_broken() for the switches with this index in the space.
    [[nodiscard]] const Rule* broken_switch(std::size_t number) const {
        for (const Rule& rule : switch_rules()) {
            if (rule.no_tail ? &rule == broken_by_switches[number] : rule.broken(of.workload_, layout)) return &rule;
        }
        return nullptr;
    }

    void judge_switches() {
        for (const auto& switches : of.space_.switches) {
            layout.switches = switches;
            const auto broken = [&](const Rule& rule) { return rule.no_tail && rule.broken(of.workload_, layout); };
            const auto all = switch_rules();
            const auto first = std::find_if(all.begin(), all.end(), broken);
            broken_by_switches.push_back(first == all.end() ? nullptr : &*first);
        }
    }

    bool turned_away(const LayoutTail& tail, const Rule* rule) {
        if (rule == nullptr) return false;
        const auto same = std::find_if(found.rejected.begin(), found.rejected.end(),
                                       [&](const auto& one) { return one.first == block && one.second.rule == rule; });
        if (same == found.rejected.end())
            found.rejected.push_back({block, {rule, tail, 1}});
        else
            ++same->second.count;
        return true;
    }

    void add(LayoutTail tail) {
        tail.switches = &of.space_.switches.front();
        tail.write(layout);
        if (turned_away(tail, first_broken(of.workload_, layout, Level::recompute))) return;
        for (std::size_t number = 0; number < of.space_.switches.size(); ++number) {
            tail.switches = &of.space_.switches[number];
            tail.write(layout);
            if (!turned_away(tail, broken_switch(number))) found.legal.emplace_back(block, tail);
        }
    }

    void add_blocks(LayoutTail tail) {
        tail.recompute_method = RecomputeMethod::block;
        for (block = 1; block < of.workload_.model.layers; block *= 2) {
            if (of.space_.recompute_method == RecomputeMethod::block && block == of.space_.recompute_num_layers) continue;
            tail.recompute_num_layers = block;
            add(tail);
        }
        block = 0;
    }

    void run() {
        judge_switches();
        for (const auto graphs : of.graph_sets_) {
            for (const auto recompute : of.recomputes_) {
                LayoutTail tail;
                tail.cuda_graphs = graphs;
                tail.recompute = recompute;
                if (recompute == Recompute::none) add(tail);
                if (recompute == Recompute::selective) {
                    for (const auto modules : of.module_sets_) {
                        tail.recompute_modules = modules;
                        tail.recompute_num_layers = modules.contains(RecomputeModule::mhc) ? of.space_.mhc_recompute_layers : 0;
                        add(tail);
                    }
                }
                if (recompute == Recompute::full) {
                    tail.recompute_method = of.space_.recompute_method;
                    tail.recompute_num_layers = of.space_.recompute_num_layers;
                    add(tail);
                    if (of.space_.recompute_blocks) add_blocks(tail);
                }
            }
        }
        std::stable_sort(found.legal.begin(), found.legal.end(),
                         [](const auto& a, const auto& b) { return a.second.switches < b.second.switches; });
    }
};

LegalTails::LegalTails(const Workload& workload, const SearchSpace& space)
    : workload_(workload),
      space_(space),
      recomputes_(each_once(space.recompute)),
      module_sets_(each_once({space.recompute_modules}, space.more_recompute_modules)),
      graph_sets_(each_once({space.cuda_graphs}, space.more_cuda_graphs)) {}

LegalTails::Tails LegalTails::without_larger_blocks(const AnyBlock& all, std::int64_t blocks) {
    Tails tails;
    for (const auto& [block, tail] : all.legal) {
        if (block <= blocks) tails.legal.push_back(tail);
    }
    for (const auto& [block, one] : all.rejected) {
        if (block > blocks) continue;
        const auto same = std::find_if(tails.rejected.begin(), tails.rejected.end(),
                                       [&rule = one.rule](const Rejected& known) { return known.rule == rule; });
        if (same == tails.rejected.end())
            tails.rejected.push_back(one);
        else
            same->count += one.count;
    }
    return tails;
}

const LegalTails::Tails& LegalTails::tails_of(const Key& key, const Layout& layout, std::int64_t blocks) {
    Known::Entry* entry = nullptr;
    {
        const std::scoped_lock lock(known_->mutex);
        entry = &known_->entries.try_emplace(key).first->second;
    }
    entry->once.call([&] { Search{*this, layout, entry->tails, 0, {}}.run(); });
    const std::scoped_lock lock(known_->mutex);
    const auto [found, fresh] = entry->by_block.try_emplace(blocks);
    if (fresh) found->second = without_larger_blocks(entry->tails, blocks);
    return found->second;
}

const LegalTails::Tails& LegalTails::of(const Layout& layout, std::int64_t blocks) {
    const ParallelSizes& sizes = layout.sizes;
    const Key key{sizes.tp, sizes.ep, sizes.etp, sizes.pp > 1 ? 1 : 0, layout.vpp > 1 ? 1 : 0, layout.sequence_parallel ? 1 : 0};
    if (last_ == nullptr || last_blocks_ != blocks || last_key_ != key) {
        last_ = &tails_of(key, layout, blocks);
        last_key_ = key;
        last_blocks_ = blocks;
    }
    return *last_;
}

}  // namespace mgplan::planner
