#pragma once
// Numbers of token copies sent to each expert: written by a run that computes, read by the same rank on shapes alone, which
// has no router's choices.

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "model/ops/router.hpp"

namespace mgplan::model {

/// One pass of one microbatch through one MoE layer. A recomputed forward has the place of the first.
struct RoutingPlace {
    std::int64_t step = 0;        ///< of the trainer, from 1
    std::int64_t microbatch = 0;  ///< of the step, on this rank
    std::int64_t layer = 0;       ///< global, from 0
    auto operator<=>(const RoutingPlace&) const = default;
};

/// Copies for each expert from each rank of the ep and etp groups, after dropping: [etp rank][ep rank][expert].
using RoutingTable = std::vector<std::int64_t>;

/// One rank's tables. Used by one thread.
class RoutingLog {
public:
    void record(const RoutingPlace& place, RoutingTable table) { tables_[place] = std::move(table); }
    /// Sets the table that at() returns for places without a record: for traces of routings that no run had.
    void assume(RoutingTable table) { assumed_ = std::move(table); }
    /// The same if all ranks have equal numbers of copies of each expert: the table's one row.
    void assume_alike(std::vector<std::int64_t> copies) { alike_ = std::move(copies); }
    /// That row; empty without one.
    [[nodiscard]] const std::vector<std::int64_t>& alike() const { return alike_; }
    /// A table that was recorded or assumed; it must exist (assertion).
    [[nodiscard]] const RoutingTable& at(const RoutingPlace& place) const;
    [[nodiscard]] bool empty() const { return tables_.empty() && assumed_.empty(); }
    /// Drops the tables of steps up to this one. For runs, which read the tables of a step on shapes once it was reported: else the log
    /// would grow with the number of steps.
    void forget_until(std::int64_t step) { tables_.erase(tables_.begin(), tables_.lower_bound({.step = step + 1})); }

    /// From now on watch() measures how close each row's choice is to another one, which reads scores back to the host.
    void watch_margins() { watches_ = true; }
    void watch(const Routing& routing);
    /// The smallest distance between the scores of the last expert chosen and the first one not; infinite where there was none.
    [[nodiscard]] double smallest_margin() const { return smallest_margin_; }

private:
    std::map<RoutingPlace, RoutingTable> tables_;
    RoutingTable assumed_;
    std::vector<std::int64_t> alike_;
    bool watches_ = false;
    double smallest_margin_ = std::numeric_limits<double>::infinity();
};

}  // namespace mgplan::model
