#include "plan/layout/rank_groups.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <stdexcept>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

constexpr std::array<std::string_view, 5> kAxisNames{"tp", "cp", "ep", "dp", "pp"};

std::string_view name_of(Axis axis) {
    return kAxisNames[static_cast<std::size_t>(axis)];
}

/// The product of positive numbers; nothing when it exceeds 64 bits (and with it every world).
std::optional<std::int64_t> product(std::initializer_list<std::int64_t> factors) {
    std::int64_t value = 1;
    for (const auto factor : factors) {
        if (__builtin_mul_overflow(value, factor, &value)) return std::nullopt;
    }
    return value;
}

std::int64_t dense_size(const ParallelSizes& sizes, Axis axis) {
    switch (axis) {
        case Axis::tp:
            return sizes.tp;
        case Axis::cp:
            return sizes.cp;
        case Axis::ep:
            return 1;
        case Axis::dp:
            return sizes.dp();
        case Axis::pp:
            return sizes.pp;
    }
    return 1;
}

std::int64_t expert_size(const ParallelSizes& sizes, Axis axis) {
    switch (axis) {
        case Axis::tp:
            return sizes.etp;
        case Axis::cp:
            return 1;
        case Axis::ep:
            return sizes.ep;
        case Axis::dp:
            return sizes.edp();
        case Axis::pp:
            return sizes.pp;
    }
    return 1;
}

template <class SizeOf>
std::vector<GridAxis> grid(const ParallelSizes& sizes, Axis absent, SizeOf size_of) {
    std::vector<GridAxis> axes;
    axes.reserve(4);
    std::int64_t stride = 1;
    for (const Axis axis : sizes.order.axes()) {
        if (axis == absent) continue;
        const std::int64_t size = size_of(sizes, axis);
        axes.push_back({axis, size, stride});
        stride *= size;
    }
    return axes;
}

template <class SizeOf>
std::int64_t pp_stride(const ParallelSizes& sizes, SizeOf size_of) {
    std::int64_t stride = 1;
    for (const Axis axis : sizes.order.axes()) {
        if (axis == Axis::pp) break;
        stride *= size_of(sizes, axis);
    }
    return stride;
}

/// "tp·cp·pp = 2·3·1 = 6 does not divide world = 16; …"
std::string not_divisible(std::string_view what, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t world) {
    const auto value = product({a, b, c});
    std::string text = fmt::format("{} = {}·{}·{}", what, a, b, c);
    if (value) text += fmt::format(" = {}", *value);
    if (!value || *value > world) return text + fmt::format(" is larger than world = {}; use smaller sizes or a larger world", world);
    text += fmt::format(" does not divide world = {}; ", world);
    // Listing divisors costs the square root of the world; past this size nobody reads the list.
    if (world > (std::int64_t{1} << 32)) return text + fmt::format("use a world that is a multiple of {}", *value);
    return text + fmt::format("choose sizes whose product is {}, or a world that is a multiple of {}", divisors_text(world, world), *value);
}

/// Goes through the rules in order and calls `report` for each broken one with its name and a function that words it. Wording is left to
/// the caller so that first_grid_problem() allocates nothing. `report` returns true to go on.
template <class Report>
void check(const ParallelSizes& s, Report report) {
    bool positive = true;
    const auto at_least_one = [&](std::string_view name, std::int64_t value) {
        if (value >= 1) return true;
        positive = false;
        return report("size_below_one", [=] { return fmt::format("{} = {} is too small; use 1 or more", name, value); });
    };
    for (const auto& [name, value] :
         std::initializer_list<std::pair<std::string_view, std::int64_t>>{{"world", s.world},
                                                                          {"tp", s.tp},
                                                                          {"cp", s.cp},
                                                                          {"ep", s.ep},
                                                                          {"etp", s.etp},
                                                                          {"pp", s.pp},
                                                                          {"distributed optimizer instances", s.optimizer_instances}}) {
        if (!at_least_one(name, value)) return;
    }
    if (!positive) return;

    // Both grids must hold the same ranks, each exactly once.
    const auto dense = product({s.tp, s.cp, s.pp});
    const auto expert = product({s.etp, s.ep, s.pp});
    const bool dense_divides = dense && s.world % *dense == 0;
    const bool expert_divides = expert && s.world % *expert == 0;
    if (!dense_divides && !report("world_not_divisible", [&] { return not_divisible("tp·cp·pp", s.tp, s.cp, s.pp, s.world); })) return;
    if (!expert_divides && !report("expert_grid_not_divisible", [&] { return not_divisible("etp·ep·pp", s.etp, s.ep, s.pp, s.world); }))
        return;
    if (!dense_divides || !expert_divides) return;

    bool all_named = true;
    for (std::size_t i = s.order.named(); i < s.order.axes().size(); ++i) {
        const Axis axis = s.order.axes()[i];
        const std::int64_t size = std::max(dense_size(s, axis), expert_size(s, axis));
        if (size == 1) continue;
        all_named = false;
        const bool experts_only = dense_size(s, axis) == 1 && axis != Axis::ep;
        const auto wording = [&, axis, size, experts_only] {
            return fmt::format("order = {} leaves out {}, but {}{} = {}; name every axis whose size is not 1", s.order.text(),
                               name_of(axis), experts_only ? "e" : "", name_of(axis), size);
        };
        if (!report("axis_missing_from_order", wording)) return;
    }
    if (!all_named) return;

    // Megatron-LM looks at the text: an order that names an axis of size 1 after pp does not end in pp.
    if (s.pp > 1 && !s.order.ends_in_pp() && s.dp() != s.edp()) {
        const auto wording = [&] {
            return fmt::format(
                "order = {} does not end in pp, which needs pp = 1 or dp = edp, but pp = {}, dp = {} and edp = {}; "
                "put pp last, or choose etp·ep = tp·cp = {}",
                s.order.text(), s.pp, s.dp(), s.edp(), s.tp * s.cp);
        };
        if (!report("order_needs_pp_last", wording)) return;
    } else if (s.pp > 1 && pp_stride(s, dense_size) != pp_stride(s, expert_size)) {
        // A pp group is {r, r + stride, …}: the groups are the same exactly when the strides are.
        const auto wording = [&] {
            return fmt::format(
                "order = {} gives the dense grid pp groups with neighbours {} ranks apart and the expert grid {} apart; "
                "put pp last, or choose etp, ep and edp so that the axes before pp have the same product in both grids",
                s.order.text(), pp_stride(s, dense_size), pp_stride(s, expert_size));
        };
        if (!report("grids_differ_in_pp_groups", wording)) return;
    }

    for (const auto& [name, size] :
         std::initializer_list<std::pair<std::string_view, std::int64_t>>{{"dp·cp", s.dp() * s.cp}, {"edp", s.edp()}}) {
        if (size % s.optimizer_instances == 0) continue;
        const auto wording = [&, name, size] {
            return fmt::format("distributed optimizer instances = {} does not divide {} = {}; use {}", s.optimizer_instances, name, size,
                               size > (std::int64_t{1} << 32) ? "1" : divisors_text(size, size));
        };
        if (!report("optimizer_instances_do_not_divide", wording)) return;
    }
}

/// A kind of group that runs along some axes of one grid.
struct GroupKind {
    std::string_view name;
    bool expert;
    std::initializer_list<Axis> along;

    [[nodiscard]] bool runs_along(Axis axis) const { return std::find(along.begin(), along.end(), axis) != along.end(); }
};

/// In Megatron-LM's creation order; what the embedding groups are made from comes first.
std::span<const GroupKind> group_kinds() {
    using enum Axis;
    static const std::array<GroupKind, 14> kKinds{{{"tp", false, {tp}},
                                                   {"cp", false, {cp}},
                                                   {"dp", false, {dp}},
                                                   {"pp", false, {pp}},
                                                   {"tp-pp", false, {tp, pp}},
                                                   {"dp-cp", false, {dp, cp}},
                                                   {"tp-dp", false, {tp, dp}},
                                                   {"tp-dp-cp", false, {tp, dp, cp}},
                                                   {"tp-cp", false, {tp, cp}},
                                                   {"expert:ep", true, {ep}},
                                                   {"expert:tp", true, {tp}},
                                                   {"expert:dp", true, {dp}},
                                                   {"expert:tp-ep", true, {tp, ep}},
                                                   {"expert:tp-ep-pp", true, {tp, ep, pp}}}};
    return kKinds;
}

/// Appends to `ranks`, of which every one spawns its neighbours along the axis.
void extend_along(const GridAxis& axis, std::vector<std::int64_t>& ranks) {
    const std::size_t before = ranks.size();
    ranks.reserve(before * static_cast<std::size_t>(axis.size));
    for (std::int64_t i = 1; i < axis.size; ++i) {
        for (std::size_t k = 0; k < before; ++k) ranks.push_back(ranks[k] + i * axis.stride);
    }
}

/// All groups of a kind. Groups follow each other as the remaining axes count up, fastest axis first; ranks inside a
/// group likewise along the kind's axes (parallel_state.py generate_masked_orthogonal_rank_groups, here by strides).
NamedGroups groups_along(const GroupKind& kind, const std::vector<GridAxis>& grid, std::int64_t world) {
    std::vector<std::int64_t> offsets{0};
    std::vector<std::int64_t> bases{0};
    for (const auto& axis : grid) extend_along(axis, kind.runs_along(axis.axis) ? offsets : bases);
    NamedGroups groups{std::string(kind.name), offsets.size(), {}};
    groups.ranks.reserve(static_cast<std::size_t>(world));
    for (const auto base : bases) {
        for (const auto offset : offsets) groups.ranks.push_back(static_cast<std::int32_t>(base + offset));
    }
    return groups;
}

/// The one group of a kind that holds the rank: the rank with its places along the kind's axes set to 0, and from there.
std::vector<std::int32_t> group_along(const GroupKind& kind, const std::vector<GridAxis>& grid, std::int64_t rank) {
    std::vector<std::int64_t> ranks{rank};
    for (const auto& axis : grid) {
        if (kind.runs_along(axis.axis)) ranks[0] -= rank / axis.stride % axis.size * axis.stride;
    }
    for (const auto& axis : grid) {
        if (kind.runs_along(axis.axis)) extend_along(axis, ranks);
    }
    return {ranks.begin(), ranks.end()};
}

/// One group for each group of `from`: the members at the given places.
NamedGroups members_of(std::string name, const NamedGroups& from, const std::vector<std::size_t>& places) {
    NamedGroups groups{std::move(name), places.size(), {}};
    groups.ranks.reserve(from.count() * places.size());
    for (std::size_t i = 0; i < from.count(); ++i) {
        for (const auto place : places) groups.ranks.push_back(from[i][place]);
    }
    return groups;
}

/// Cuts every group into `parts` contiguous slices.
NamedGroups slices_of(std::string name, const NamedGroups& from, std::size_t parts) {
    return {std::move(name), from.group_size / parts, from.ranks};
}

/// Every `parts`-th of a group's slices side by side: group i holds member i of each slice.
NamedGroups across_slices_of(std::string name, const NamedGroups& from, std::size_t parts) {
    NamedGroups groups{std::move(name), parts, {}};
    groups.ranks.reserve(from.ranks.size());
    const std::size_t slice = from.group_size / parts;
    for (std::size_t i = 0; i < from.count(); ++i) {
        for (std::size_t member = 0; member < slice; ++member) {
            for (std::size_t part = 0; part < parts; ++part) groups.ranks.push_back(from[i][part * slice + member]);
        }
    }
    return groups;
}

}  // namespace

AxisOrder AxisOrder::parse(std::string_view text) {
    Problems problems;
    AxisOrder order;
    std::array<bool, 5> seen{};
    std::size_t count = 0;
    std::size_t at = 0;
    if (text.empty()) problems.add("order is empty; write axes, fastest varying first, such as tp-cp-ep-dp-pp");
    // A sane order has 5 words; more than a few beyond that say nothing new.
    for (const auto& word : split(text.substr(0, 200), '-')) {
        const std::string name = lower_case(word);
        const auto found = std::find(kAxisNames.begin(), kAxisNames.end(), name);
        if (found == kAxisNames.end()) {
            std::string shown = word.substr(0, 20);
            for (char& c : shown) c = static_cast<unsigned char>(c) < 0x20 ? '?' : c;
            problems.add("order has an unknown axis '{}'; use tp, cp, ep, dp and pp, each at most once, joined by -\n{}", shown,
                         caret_under(text, at));
        } else {
            const auto index = static_cast<std::size_t>(found - kAxisNames.begin());
            if (seen[index]) {
                problems.add("order names {} twice; name each axis once\n{}", name, caret_under(text, at));
            } else {
                seen[index] = true;
                order.axes_[count++] = static_cast<Axis>(index);
            }
        }
        at += word.size() + 1;
    }
    problems.throw_if_any();
    order.named_ = count;
    for (const Axis axis : {Axis::tp, Axis::pp, Axis::dp, Axis::ep, Axis::cp}) {
        if (!seen[static_cast<std::size_t>(axis)]) order.axes_[count++] = axis;
    }
    return order;
}

std::string AxisOrder::text() const {
    std::string text;
    for (std::size_t i = 0; i < named_; ++i) {
        if (i > 0) text += '-';
        text += name_of(axes_[i]);
    }
    return text;
}

std::vector<std::string> problems(const ParallelSizes& sizes) {
    std::vector<std::string> found;
    check(sizes, [&](std::string_view, const auto& wording) {
        found.push_back(wording());
        return true;
    });
    return found;
}

std::optional<std::string_view> first_grid_problem(const ParallelSizes& sizes) {
    std::optional<std::string_view> first;
    check(sizes, [&](std::string_view rule, const auto&) {
        first = rule;
        return false;
    });
    return first;
}

std::vector<GridAxis> dense_grid(const ParallelSizes& sizes) {
    return grid(sizes, Axis::ep, dense_size);
}

std::vector<GridAxis> expert_grid(const ParallelSizes& sizes) {
    return grid(sizes, Axis::cp, expert_size);
}

RankGroups::RankGroups(const ParallelSizes& sizes, bool by_document) : sizes_(sizes) {
    auto found = problems(sizes);
    if (!found.empty()) throw ConfigError(std::move(found));
    if (sizes.world > kMaxListedRanks) {
        throw ConfigError(fmt::format("world = {} is too large to list its groups; use at most {} ranks", sizes.world, kMaxListedRanks));
    }
    const std::int64_t world = sizes.world;
    const auto dense = dense_grid(sizes);
    const auto expert = expert_grid(sizes);
    all_.reserve(19);
    for (const GroupKind& kind : group_kinds()) {
        all_.push_back(groups_along(kind, kind.expert ? expert : dense, world));
        if (kind.name != "tp-cp") continue;
        // The first and the last stage of each pipeline share the (tied) embedding; position embeddings live on the first.
        const std::size_t last = static_cast<std::size_t>(sizes.pp) - 1;
        all_.push_back(members_of("embedding", at("pp"), last == 0 ? std::vector<std::size_t>{0} : std::vector<std::size_t>{0, last}));
        all_.push_back(members_of("position_embedding", at("pp"), {0}));
    }
    if (by_document) {
        const auto ranks = static_cast<std::uint64_t>(sizes.dp() * sizes.cp);
        if (!std::has_single_bit(ranks))
            throw ConfigError(fmt::format(
                "dp·cp = {}·{} is no power of two, over which dynamic context parallelism is not placed here; use another world, tp or pp",
                sizes.dp(), sizes.cp));
        for (std::uint64_t size = 2; size < ranks; size *= 2)
            all_.push_back(slices_of(fmt::format("hybrid:dp-cp-{}", size), at("dp-cp"), static_cast<std::size_t>(ranks / size)));
    }
    if (sizes.optimizer_instances > 1) {
        const auto parts = static_cast<std::size_t>(sizes.optimizer_instances);
        all_.push_back(slices_of("intra_partial:dp-cp", at("dp-cp"), parts));
        all_.push_back(slices_of("intra_partial:expert:dp", at("expert:dp"), parts));
        all_.push_back(across_slices_of("inter_partial:expert:dp", at("expert:dp"), parts));
    }
}

const NamedGroups& RankGroups::at(std::string_view name) const {
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const NamedGroups& groups) { return groups.name == name; });
    if (found == all_.end()) throw std::out_of_range(fmt::format("there are no rank groups named '{}'", name));
    return *found;
}

std::vector<std::int32_t> group_of(const ParallelSizes& sizes, std::string_view name, std::int64_t rank) {
    if (first_grid_problem(sizes)) throw ConfigError(problems(sizes));
    MGPLAN_ASSERT(sizes.world <= std::numeric_limits<std::int32_t>::max(), "ranks are 32-bit numbers");
    MGPLAN_ASSERT(rank >= 0 && rank < sizes.world, "the rank is inside the world");
    for (const GroupKind& kind : group_kinds()) {
        if (kind.name == name) return group_along(kind, kind.expert ? expert_grid(sizes) : dense_grid(sizes), rank);
    }
    const auto holds = [rank](const std::vector<std::int32_t>& group) {
        return std::find(group.begin(), group.end(), rank) != group.end();
    };
    if (name == "embedding" || name == "position_embedding") {
        const auto pipeline = group_of(sizes, "pp", rank);
        std::vector<std::int32_t> ends{pipeline.front()};
        if (name == "embedding" && pipeline.size() > 1) ends.push_back(pipeline.back());
        return holds(ends) ? ends : std::vector<std::int32_t>{};
    }
    const bool instances = sizes.optimizer_instances > 1;
    const auto parts = static_cast<std::ptrdiff_t>(sizes.optimizer_instances);
    if (instances && (name == "intra_partial:dp-cp" || name == "intra_partial:expert:dp" || name == "inter_partial:expert:dp")) {
        const auto whole = group_of(sizes, name.substr(name.find(':') + 1), rank);
        const std::ptrdiff_t slice = std::ssize(whole) / parts, place = std::find(whole.begin(), whole.end(), rank) - whole.begin();
        if (name.starts_with("intra")) return {whole.begin() + place / slice * slice, whole.begin() + (place / slice + 1) * slice};
        std::vector<std::int32_t> across;
        for (std::ptrdiff_t part = 0; part < parts; ++part) across.push_back(whole[static_cast<std::size_t>(part * slice + place % slice)]);
        return across;
    }
    throw std::out_of_range(fmt::format("there are no rank groups named '{}'", name));
}

}  // namespace mgplan
