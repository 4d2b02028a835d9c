#pragma once
// The global ranks of each communication group: two grids over the same ranks, dense (tp-cp-dp-pp) and expert (etp-ep-edp-pp). Computed
// here and nowhere else. Source: Megatron-LM core/parallel_state.py.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan {

enum class Axis : std::uint8_t { tp, cp, ep, dp, pp };

/// The order of the axes, fastest varying first. Default tp-cp-ep-dp-pp.
class AxisOrder {
public:
    AxisOrder() = default;
    /// Any case of letters; axes left out are appended (they must then have size 1: checked by RankGroups).
    /// Throws ConfigError for unknown or repeated axes, naming the axis.
    static AxisOrder parse(std::string_view text);
    [[nodiscard]] std::string text() const;  ///< "tp-cp-ep-dp-pp"; the named axes alone, so that parse() reads it back
    /// True if the text named pp last: then the two grids share their pp groups whatever dp and edp are.
    [[nodiscard]] bool ends_in_pp() const { return axes_[named_ - 1] == Axis::pp; }
    [[nodiscard]] const std::array<Axis, 5>& axes() const { return axes_; }
    /// The axes that the text named; those appended by parse() come after them.
    [[nodiscard]] std::size_t named() const { return named_; }
    bool operator==(const AxisOrder&) const = default;

private:
    std::array<Axis, 5> axes_{Axis::tp, Axis::cp, Axis::ep, Axis::dp, Axis::pp};
    std::size_t named_ = 5;
};

/// Parallel sizes; dp and edp are derived.
struct ParallelSizes {
    std::int64_t world = 1;
    std::int64_t tp = 1;
    std::int64_t cp = 1;
    std::int64_t ep = 1;
    std::int64_t etp = 1;
    std::int64_t pp = 1;
    AxisOrder order;
    std::int64_t optimizer_instances = 1;

    [[nodiscard]] std::int64_t dp() const { return world / (tp * cp * pp); }
    [[nodiscard]] std::int64_t edp() const { return world / (etp * ep * pp); }
    /// True if experts are divided over other ranks than all other parameters. If not, all gradients are reduced over the same ranks, from
    /// one buffer (Megatron-core, extensions/transformer_engine.py and tensor_parallel/layers.py, use_expert_pgs).
    [[nodiscard]] bool separates_experts() const { return ep > 1 || etp != tp; }
    bool operator==(const ParallelSizes&) const = default;
};

/// Every rule that the sizes and the order break, as sentences; empty when both grids exist. Rules: products divide
/// the world; an order that does not end in pp needs pp = 1 or dp = edp; both grids have the same pp groups; the
/// optimizer instances divide dp·cp and edp.
[[nodiscard]] std::vector<std::string> problems(const ParallelSizes& sizes);

/// The first rule broken as a short constant name, or nothing; the planner's cheap form of problems() (no allocation).
/// Names: size_below_one, world_not_divisible, expert_grid_not_divisible, axis_missing_from_order, order_needs_pp_last,
/// grids_differ_in_pp_groups, optimizer_instances_do_not_divide.
[[nodiscard]] std::optional<std::string_view> first_grid_problem(const ParallelSizes& sizes);

/// One axis of a grid: its size and the distance in global ranks between neighbours along it.
struct GridAxis {
    Axis axis;
    std::int64_t size;
    std::int64_t stride;
};

/// Axes of the dense grid (cp, dp, no ep) and of the expert grid (tp means etp, dp means edp, no cp), fastest first.
[[nodiscard]] std::vector<GridAxis> dense_grid(const ParallelSizes& sizes);
[[nodiscard]] std::vector<GridAxis> expert_grid(const ParallelSizes& sizes);

/// The largest world whose groups are written out: 2^24 ranks. Strides and rules (the functions above) have no limit.
inline constexpr std::int64_t kMaxListedRanks = 16'777'216;

/// Groups of one name, in Megatron-LM's creation order. All have the same size, so they are stored flat.
struct NamedGroups {
    std::string name;
    std::size_t group_size = 1;
    std::vector<std::int32_t> ranks;  ///< global ranks, group after group

    [[nodiscard]] std::size_t count() const { return ranks.size() / group_size; }
    [[nodiscard]] std::span<const std::int32_t> operator[](std::size_t group) const {
        return std::span(ranks).subspan(group * group_size, group_size);
    }
    bool operator==(const NamedGroups&) const = default;
};

/// All groups of a layout (CLI.md lists the names).
class RankGroups {
public:
    /// `by_document`: dynamic context parallelism (--hybrid-context-parallel) also has groups of each power of two of the ranks of dp·cp,
    /// from 2 to the largest below all of them ("hybrid:dp-cp-2", parallel_state.py, create_hybrid_dp_cp_groups). Throws ConfigError with
    /// problems(sizes), when the world is larger than kMaxListedRanks, or if `by_document` is set and dp·cp is no power of two.
    explicit RankGroups(const ParallelSizes& sizes, bool by_document = false);

    [[nodiscard]] const ParallelSizes& sizes() const { return sizes_; }
    [[nodiscard]] const std::vector<NamedGroups>& all() const { return all_; }
    /// Groups by name; throws std::out_of_range for a name that does not exist.
    [[nodiscard]] const NamedGroups& at(std::string_view name) const;

private:
    ParallelSizes sizes_;
    std::vector<NamedGroups> all_;
};

/// The group of this name that holds the rank, as RankGroups lists it, found by strides: the work is that of the group alone, microseconds
/// for one rank of any world. Empty where no group of the name holds the rank (embedding groups). Throws ConfigError with problems(sizes),
/// and std::out_of_range for a name that RankGroups would not list; a rank outside the world is a bug (assertion).
[[nodiscard]] std::vector<std::int32_t> group_of(const ParallelSizes& sizes, std::string_view name, std::int64_t rank);

}  // namespace mgplan
