#include "support.hpp"

#include <algorithm>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/layout/layout_switches.hpp"
#include "planner/candidates.hpp"
#include "planner/constraints.hpp"

namespace mgplan::planner::testing {
namespace {

/// Whether every rule up to `last` holds.
bool holds(const Workload& workload, const Layout& layout, Level last) {
    return std::none_of(rules().begin(), rules().end(),
                        [&](const Rule& rule) { return rule.level <= last && rule.broken(workload, layout); });
}

/// Whether the rules of one level hold.
bool holds_at(const Workload& workload, const Layout& layout, Level level) {
    return std::none_of(rules().begin(), rules().end(),
                        [&](const Rule& rule) { return rule.level == level && rule.broken(workload, layout); });
}

void visit_tails(const Workload& work, Layout layout, const std::function<void(const Layout&)>& visit) {
    for (std::int64_t micro_batch = 1; micro_batch <= 16; ++micro_batch) {
        layout.micro_batch = micro_batch;
        layout.num_microbatches = work.batch.global_batch / (layout.dp() * micro_batch);
        if (!holds(work, layout, Level::microbatch)) continue;
        for (const bool sequence_parallel : {false, true}) {
            if (sequence_parallel && layout.sizes.tp == 1) continue;
            layout.sequence_parallel = sequence_parallel;
            for (const CpCommType kind : {CpCommType::p2p, CpCommType::all_gather, CpCommType::a2a}) {
                if (kind != CpCommType::p2p && layout.sizes.cp == 1) continue;
                layout.cp_comm_type = kind;
                for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
                    layout.recompute = recompute;
                    layout.recompute_modules = {};
                    layout.recompute_method.reset();
                    layout.recompute_num_layers = 0;
                    if (recompute == Recompute::selective) layout.recompute_modules.add(RecomputeModule::core_attn);
                    if (recompute == Recompute::full) {
                        layout.recompute_method = RecomputeMethod::uniform;
                        layout.recompute_num_layers = 1;
                    }
                    if (holds(work, layout, Level::recompute)) visit(layout);
                }
            }
        }
    }
}

}  // namespace

Workload workload_of(const std::string& model, std::int64_t world, const std::string& cluster, std::int64_t global_batch,
                     std::int64_t sequence) {
    Workload work;
    work.model = formats::load_model(model).model;
    work.cluster = load_cluster(cluster);
    work.world = world;
    const std::int64_t longest = work.model.max_positions > 0 ? work.model.max_positions : 4096;
    work.batch.sequence = sequence > 0 ? sequence : work.model.default_sequence.value_or(std::min<std::int64_t>(longest, 4096));
    work.batch.global_batch = global_batch > 0 ? global_batch : 8 * world;
    work.memory_limit = work.cluster.memory_bytes;
    return work;
}

void visit_naively(const Workload& work, const std::function<void(const Layout&)>& visit) {
    const bool moe = work.model.moe.has_value();
    Layout layout;
    layout.sizes.world = work.world;
    for (std::int64_t tp = 1; tp <= work.world; ++tp) {
        layout.sizes.tp = tp;
        if (!holds_at(work, layout, Level::tensor)) continue;
        for (std::int64_t cp = 1; cp <= work.world / tp; ++cp) {
            layout.sizes.cp = cp;
            if (!holds_at(work, layout, Level::context)) continue;
            for (std::int64_t pp = 1; pp <= work.world / (tp * cp); ++pp) {
                layout.sizes.pp = pp;
                if (!holds_at(work, layout, Level::pipeline)) continue;
                std::map<int, std::shared_ptr<const StageSplit>> splits;
                for (int vpp = 1; vpp <= work.model.layers + 2; ++vpp) {
                    auto split = automatic_stage_split(work.model.layers, work.model.mtp_layers, static_cast<int>(pp), vpp);
                    // Beyond 8 with equal chunks, embedding and loss counted or not.
                    const bool equal = split && (split->kind() == SplitKind::even || split->kind() == SplitKind::account_embedding_loss);
                    if (split && (vpp <= 8 || equal)) splits[vpp] = std::make_shared<const StageSplit>(std::move(*split));
                }
                for (std::int64_t ep = 1; ep <= (moe ? work.world / pp : 1); ++ep) {
                    for (std::int64_t etp = moe ? 1 : tp; etp <= (moe ? work.world / (pp * ep) : tp); ++etp) {
                        layout.sizes.ep = ep;
                        layout.sizes.etp = etp;
                        if (!holds_at(work, layout, Level::expert)) continue;
                        for (const auto& [vpp, split] : splits) {
                            layout.vpp = vpp;
                            layout.split = split;
                            layout.group_size = pp;
                            if (holds(work, layout, Level::chunks)) visit_tails(work, layout, visit);
                        }
                    }
                }
                layout.sizes.ep = 1;
                layout.sizes.etp = 1;
                layout.vpp = 1;
            }
            layout.sizes.pp = 1;
        }
        layout.sizes.cp = 1;
    }
}

std::string fingerprint(const Layout& l) {
    const ParallelSizes& s = l.sizes;
    std::string text =
        fmt::format("world{} tp{} cp{} ep{} etp{} pp{} {} oi{} vpp{} g{} mbs{} m{} sp{} cp:{} rc:{} {} {} {} graphs:{} {}", s.world, s.tp,
                    s.cp, s.ep, s.etp, s.pp, s.order.text(), s.optimizer_instances, l.vpp, l.group_size, l.micro_batch, l.num_microbatches,
                    l.sequence_parallel, to_string(l.cp_comm_type), to_string(l.recompute), fmt::join(names_in(l.recompute_modules), "+"),
                    l.recompute_method ? to_string(*l.recompute_method) : "-", l.recompute_num_layers,
                    fmt::join(names_in(l.cuda_graphs), "+"), to_string(l.engine));
    if (l.switches) text += fmt::format(" {}", fmt::join(switch_words(*l.switches), "+"));
    if (!l.split) return text + " no split";
    for (int v = 0; v < l.split->vpp(); ++v) {
        for (int p = 0; p < l.split->pp(); ++p) {
            const StageChunk& chunk = l.split->chunk(p, v);
            text += fmt::format("|{}{}@{}{}{}", chunk.embedding ? "E" : "", chunk.decoders, chunk.first_decoder,
                                chunk.mtp > 0 ? fmt::format("m{}", chunk.mtp) : "", chunk.loss ? "L" : "");
        }
    }
    return text;
}

std::vector<Layout> candidates_of(const Workload& workload, const SearchSpace& space, CandidateCounts& counts) {
    std::vector<Layout> found;
    for (const Prefix& prefix : prefixes(workload, space, counts)) {
        visit_layouts(workload, space, prefix, counts, [&](const Layout& layout) { found.push_back(layout); });
    }
    return found;
}

}  // namespace mgplan::planner::testing
