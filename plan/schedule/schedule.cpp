#include "plan/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

/// Virtual sizes of a request once its kind is known; all in range.
struct Shape {
    ScheduleKind kind;
    std::int64_t pp;
    std::int64_t vpp;
    std::int64_t microbatches;
    std::int64_t group;
    bool forward_only;

    [[nodiscard]] std::int64_t total() const { return microbatches * vpp; }

    /// Forwards before the first backward (schedules.py get_pp_rank_microbatches).
    [[nodiscard]] std::int64_t warmup(std::int64_t rank) const {
        if (forward_only) return total();
        switch (kind) {
            case ScheduleKind::none:
                return 0;
            case ScheduleKind::one_f_one_b:
                return std::min(pp - rank - 1, total());
            case ScheduleKind::interleaved:
                return std::min(2 * (pp - rank - 1) + (vpp - 1) * group, total());
        }
        return 0;
    }
};

/// Walks the table of forwards: groups of `group` microbatches (the last may be shorter), inside a group chunk by chunk
/// (schedules.py get_schedule_table).
class TableCursor {
public:
    explicit TableCursor(const Shape& shape) : shape_(shape), end_(std::min(shape.group, shape.microbatches)) {}

    [[nodiscard]] std::int64_t microbatch() const { return microbatch_; }
    [[nodiscard]] std::int64_t chunk() const { return chunk_; }

    void advance() {
        if (++microbatch_ < end_) return;
        if (++chunk_ < shape_.vpp) {
            microbatch_ = begin_;
            return;
        }
        chunk_ = 0;
        begin_ = end_;
        microbatch_ = begin_;
        end_ = std::min(begin_ + shape_.group, shape_.microbatches);
    }

private:
    const Shape& shape_;
    std::int64_t begin_ = 0;
    std::int64_t end_;
    std::int64_t microbatch_ = 0;
    std::int64_t chunk_ = 0;
};

ScheduleKind default_kind(const ScheduleRequest& request) {
    if (request.vpp > 1) return ScheduleKind::interleaved;
    return request.pp > 1 ? ScheduleKind::one_f_one_b : ScheduleKind::none;
}

void check_kind(const ScheduleRequest& r, ScheduleKind kind, Problems& problems) {
    if (r.pp == 1 && r.vpp > 1) {
        problems.add("vpp = {} needs a pipeline, but pp = 1; use vpp = 1, or pp of 2 or more", r.vpp);
        return;
    }
    switch (kind) {
        case ScheduleKind::none:
            if (r.pp > 1) problems.add("kind = none runs no pipeline, but pp = {}; use pp = 1, or kind 1f1b or interleaved", r.pp);
            break;
        case ScheduleKind::one_f_one_b:
            if (r.vpp > 1) problems.add("kind = 1f1b has one model chunk per rank, but vpp = {}; use vpp = 1, or kind interleaved", r.vpp);
            break;
        case ScheduleKind::interleaved:
            if (r.pp == 1)
                problems.add("kind = interleaved needs a pipeline, but pp = 1; use kind none, or pp and vpp of 2 or more");
            else if (r.vpp == 1)
                problems.add("kind = interleaved needs several model chunks per rank, but vpp = 1; use vpp = 2 or more, or kind 1f1b");
            break;
    }
}

void check_groups(const ScheduleRequest& r, std::int64_t group, Problems& problems) {
    const auto refusal = interleaved_refusal(r.pp, r.microbatches, group);
    if (!refusal) return;
    if (*refusal == "group_size_below_pp" && r.microbatches >= r.pp) {
        problems.add("group size = {} is below pp = {}; use {} to {} (pp to microbatches)", group, r.pp, r.pp, r.microbatches);
    } else if (*refusal != "last_group_shorter_than_pp") {
        problems.add("group size = {} must lie between pp = {} and microbatches = {}; use {}", group, r.pp, r.microbatches,
                     r.microbatches >= r.pp ? fmt::format("group size {}", r.pp) : fmt::format("at least {} microbatches", r.pp));
    } else {
        const std::int64_t rest = r.microbatches % group;
        problems.add(
            "microbatches = {} leave a last group of {} behind groups of {}, which is below pp = {}; use {} or {} microbatches, or another "
            "group size",
            r.microbatches, rest, group, r.pp, r.microbatches - rest, r.microbatches - rest + r.pp);
    }
}

Shape shape_of(ScheduleKind kind, const ScheduleRequest& r, std::int64_t group) {
    // Without chunks the table is 0, 1, 2, …: one group of everything.
    return {kind, r.pp, r.vpp, r.microbatches, kind == ScheduleKind::interleaved ? group : r.microbatches, r.forward_only};
}

}  // namespace

std::string_view to_string(ScheduleKind kind) {
    switch (kind) {
        case ScheduleKind::none:
            return "none";
        case ScheduleKind::one_f_one_b:
            return "1f1b";
        case ScheduleKind::interleaved:
            return "interleaved";
    }
    return "?";
}

std::string_view to_string(Pass pass) {
    constexpr std::array<std::string_view, kPasses> kNames{"forward", "backward", "input gradient", "weight gradient"};
    return kNames.at(static_cast<std::size_t>(pass));
}

std::optional<std::string_view> interleaved_refusal(int pp, std::int64_t microbatches, std::int64_t group_size) {
    if (group_size < pp) return "group_size_below_pp";
    if (group_size > microbatches) return "group_size_above_microbatches";
    const std::int64_t rest = microbatches % group_size;
    if (rest > 0 && rest < pp) return "last_group_shorter_than_pp";
    return std::nullopt;
}

Schedule::Schedule(const ScheduleRequest& request)
    : request_(request), kind_(request.kind.value_or(default_kind(request))), group_size_(request.pp) {
    constexpr int kMost = 65'536;
    constexpr int kMostChunks = std::numeric_limits<std::int16_t>::max();  // PipelineOp::chunk
    Problems problems;
    if (request.pp < 1 || request.pp > kMost) problems.add("pp = {} is out of range; use 1 to {}", request.pp, kMost);
    if (request.vpp < 1 || request.vpp > kMostChunks) problems.add("vpp = {} is out of range; use 1 to {}", request.vpp, kMostChunks);
    if (request.microbatches < 1) problems.add("microbatches = {} is too small; use 1 or more", request.microbatches);
    if (request.group_size && *request.group_size < 1) problems.add("group size = {} is too small; use pp or more", *request.group_size);
    problems.throw_if_any();

    const std::int64_t most = kMaxRankOps / (2 * std::int64_t{request.vpp});
    if (request.microbatches > most) {
        problems.add("microbatches = {} with vpp = {} make more than {} forwards and backwards a rank; use at most {} microbatches",
                     request.microbatches, request.vpp, kMaxRankOps, most);
    }
    check_kind(request, kind_, problems);
    if (kind_ == ScheduleKind::interleaved) {
        group_size_ = request.group_size.value_or(request.pp);
        if (request.pp > 1) check_groups(request, group_size_, problems);
    }
    problems.throw_if_any();
}

std::vector<std::pair<std::int64_t, int>> Schedule::table() const {
    const Shape shape = shape_of(kind_, request_, group_size_);
    std::vector<std::pair<std::int64_t, int>> table;
    table.reserve(static_cast<std::size_t>(shape.total()));
    TableCursor forward(shape);
    for (std::int64_t i = 0; i < shape.total(); ++i, forward.advance()) {
        table.emplace_back(forward.microbatch(), static_cast<int>(forward.chunk()));
    }
    return table;
}

RankSchedule Schedule::rank(int pp_rank) const {
    MGPLAN_ASSERT(pp_rank >= 0 && pp_rank < request_.pp, "a pipeline rank of this schedule");
    const Shape shape = shape_of(kind_, request_, group_size_);
    const std::int64_t total = shape.total();
    RankSchedule rank;
    rank.rank = pp_rank;
    rank.warmup = shape.warmup(pp_rank);
    rank.live_per_chunk.assign(static_cast<std::size_t>(shape.vpp), 0);
    const auto entries = static_cast<std::size_t>(shape.forward_only ? total : 2 * total);
    rank.ops.reserve(entries);

    std::vector<std::int64_t> live(rank.live_per_chunk.size(), 0);
    std::int64_t live_total = 0;
    TableCursor forward(shape);
    TableCursor backward(shape);
    const auto run_forward = [&] {
        const auto chunk = static_cast<std::size_t>(forward.chunk());
        rank.ops.push_back({Pass::forward, static_cast<std::int16_t>(chunk), static_cast<std::int32_t>(forward.microbatch())});
        forward.advance();
        if (shape.forward_only) return;
        rank.live_per_chunk[chunk] = std::max(rank.live_per_chunk[chunk], ++live[chunk]);
        rank.peak_live = std::max(rank.peak_live, ++live_total);
    };
    // Backwards follow the table of the forwards with the chunks in reverse.
    const auto run_backward = [&] {
        const auto chunk = static_cast<std::size_t>(shape.vpp - 1 - backward.chunk());
        rank.ops.push_back({Pass::backward, static_cast<std::int16_t>(chunk), static_cast<std::int32_t>(backward.microbatch())});
        backward.advance();
        --live[chunk];
        --live_total;
    };
    for (std::int64_t i = 0; i < rank.warmup; ++i) run_forward();
    if (shape.forward_only) return rank;
    for (std::int64_t i = rank.warmup; i < total; ++i) {
        run_forward();
        run_backward();
    }
    for (std::int64_t i = 0; i < rank.warmup; ++i) run_backward();
    return rank;
}

std::vector<std::int64_t> live_at_peak(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank) {
    ScheduleRequest request;
    request.pp = pp;
    request.vpp = vpp;
    request.microbatches = microbatches;
    const ScheduleKind kind = default_kind(request);
    MGPLAN_ASSERT(pp_rank >= 0 && pp_rank < pp && vpp >= 1 && microbatches >= 1 && group_size >= 1, "sizes of a schedule");
    const Shape shape = shape_of(kind, request, group_size);
    // Live pairs grow by one with each warm-up forward; then every forward is followed by a backward. So the largest sum
    // is first reached after warm-up + 1 forwards: the first entries of the table, none of them backwarded yet.
    const std::int64_t forwards = std::min(shape.total(), shape.warmup(pp_rank) + 1);
    const std::int64_t block = std::min(shape.group, microbatches) * shape.vpp;
    const std::int64_t full = forwards / block;
    const std::int64_t rest = forwards - full * block;
    const std::int64_t width = std::min(shape.group, microbatches - full * shape.group);
    std::vector<std::int64_t> live(static_cast<std::size_t>(vpp), full * shape.group);
    for (std::int64_t chunk = 0; rest > chunk * width; ++chunk)
        live[static_cast<std::size_t>(chunk)] += std::min(width, rest - chunk * width);
    return live;
}

}  // namespace mgplan
