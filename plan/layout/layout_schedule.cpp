#include "plan/layout/layout_schedule.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

ScheduleKind own_kind(const Layout& layout) {
    if (layout.vpp > 1) return ScheduleKind::interleaved;
    return layout.sizes.pp > 1 ? ScheduleKind::one_f_one_b : ScheduleKind::none;
}

std::variant<Schedule, PipelineOrder> lists_of(const Layout& layout) {
    const int pp = static_cast<int>(layout.sizes.pp);
    if (layout.schedule) {
        auto problems = split_schedule_problems(layout);
        if (!problems.empty()) throw ConfigError(std::move(problems));
        return split_order({*layout.schedule, pp, layout.num_microbatches});
    }
    ScheduleRequest request;
    request.pp = pp;
    request.vpp = layout.vpp;
    request.microbatches = layout.num_microbatches;
    if (layout.vpp > 1) request.group_size = layout.group_size;
    return Schedule(request);
}

}  // namespace

std::string_view schedule_name(const Layout& layout) {
    return layout.schedule ? to_string(*layout.schedule) : to_string(own_kind(layout));
}

std::vector<std::string> schedule_names() {
    std::vector<std::string> names;
    for (const ScheduleKind kind : {ScheduleKind::none, ScheduleKind::one_f_one_b, ScheduleKind::interleaved})
        names.emplace_back(to_string(kind));
    for (auto& name : split_schedule_names()) names.push_back(std::move(name));
    return names;
}

std::vector<std::string> split_schedule_problems(const Layout& layout) {
    std::vector<std::string> problems;
    if (!layout.schedule) return problems;
    const std::string_view name = to_string(*layout.schedule);
    if (layout.engine == Engine::megatron)
        problems.push_back(fmt::format(
            "schedule {} with engine = megatron: Megatron-LM has no schedule with divided backwards; use --engine mgplan", name));
    if (const int chunks = chunks_of(*layout.schedule); layout.vpp != chunks) {
        problems.push_back(fmt::format("schedule {} has {} a rank, but vpp = {}; use vpp = {}", name,
                                       chunks == 1 ? "one model chunk" : "two model chunks", layout.vpp, chunks));
    } else if (layout.split != nullptr && layout.split->v_shaped() != is_v_shaped(*layout.schedule)) {
        problems.push_back(fmt::format("schedule {} lays the model's chunks {}, but the stage split has them {}; make the layout again",
                                       name, layout.split->v_shaped() ? "round the ranks" : "in a V",
                                       layout.split->v_shaped() ? "in a V" : "round the ranks"));
    }
    try {
        check_split_schedule({*layout.schedule, static_cast<int>(layout.sizes.pp), layout.num_microbatches});
    } catch (const ConfigError& error) {
        problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
    return problems;
}

std::vector<std::string> split_schedule_obstacles(const ModelSpec& model, const TrainingSpec& training, const Layout& layout) {
    std::vector<std::string> obstacles;
    if (!layout.schedule) return obstacles;
    const std::string_view name = to_string(*layout.schedule);
    if (!layout.cuda_graphs.empty()) obstacles.push_back(fmt::format("schedule {} with CUDA graphs (use --cuda-graphs none)", name));
    if (model.mtp_layers > 0) obstacles.push_back(fmt::format("schedule {} with multi-token prediction (use --schedule auto)", name));
    if (training.megatron.fully_sharded.active())
        obstacles.push_back(fmt::format("schedule {} with fully sharded parameters (use --schedule auto)", name));
    if (model.tied_embeddings && is_v_shaped(*layout.schedule))
        obstacles.push_back(
            fmt::format("schedule {} with tied embeddings, whose two copies would lie on one rank (use a schedule without a V)", name));
    return obstacles;
}

LayoutSchedule::LayoutSchedule(const Layout& layout) : lists_(lists_of(layout)), group_size_(layout.group_size) {}

int LayoutSchedule::pp() const {
    return split() != nullptr ? split()->pp : std::get<Schedule>(lists_).pp();
}

int LayoutSchedule::chunks() const {
    return split() != nullptr ? split()->chunks : std::get<Schedule>(lists_).vpp();
}

RankSchedule LayoutSchedule::rank(int pp_rank) const {
    if (split() == nullptr) return std::get<Schedule>(lists_).rank(pp_rank);
    RankSchedule rank;
    rank.rank = pp_rank;
    rank.ops = split()->ranks.at(static_cast<std::size_t>(pp_rank));
    rank.live_per_chunk.assign(static_cast<std::size_t>(chunks()), 0);
    std::vector<std::int64_t> live(rank.live_per_chunk.size(), 0);
    std::int64_t all = 0;
    bool warms_up = true;
    for (const PipelineOp& op : rank.ops) {
        const auto chunk = static_cast<std::size_t>(op.chunk);
        if (op.pass == Pass::forward) {
            rank.live_per_chunk[chunk] = std::max(rank.live_per_chunk[chunk], ++live[chunk]);
            rank.peak_live = std::max(rank.peak_live, ++all);
            rank.warmup += warms_up ? 1 : 0;
        } else {
            warms_up = false;
            if (!ends_microbatch(op.pass)) continue;
            --live[chunk];
            --all;
        }
    }
    return rank;
}

PipelineOrder LayoutSchedule::order() const {
    return split() != nullptr ? *split() : order_of(std::get<Schedule>(lists_));
}

int LayoutSchedule::neighbour(int pp_rank, int chunk, int step) const {
    PipelineOrder places;
    places.pp = pp();
    places.chunks = chunks();
    places.v_shaped = v_shaped();
    const int stage = places.stage_of(pp_rank, chunk) + step;
    return stage >= 0 && stage < places.stages() ? places.rank_of(stage) : -1;
}

int LayoutSchedule::rank_behind(int pp_rank, int chunk) const {
    return neighbour(pp_rank, chunk, 1);
}

int LayoutSchedule::rank_before(int pp_rank, int chunk) const {
    return neighbour(pp_rank, chunk, -1);
}

}  // namespace mgplan
