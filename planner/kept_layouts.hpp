#pragma once
// The layouts that a search keeps.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "planner/search.hpp"

namespace mgplan::planner {

/// The best `capacity` layouts seen. Most candidates fail one comparison with the last. New ones are sorted in batches of a quarter of the
/// capacity.
template <class Before>
class BestList {
public:
    BestList(std::size_t capacity, Before before) : capacity_(capacity), batch_(std::max<std::size_t>(1, capacity / 4)), before_(before) {}

    void offer(const Layout& layout, double seconds, std::int64_t peak) {
        if (capacity_ == 0) return;
        // Cheap comparison of the numbers before the layout is copied.
        RankedLayout candidate{{}, seconds, peak};
        if (sorted_ == capacity_ && before_.surely_behind(candidate, list_[sorted_ - 1])) return;
        candidate.layout = layout;
        list_.push_back(std::move(candidate));
        if (list_.size() - sorted_ >= batch_) sort();
    }

    /// Seconds that a layout must not exceed to enter, if the list is sorted by time.
    [[nodiscard]] double slowest() const {
        return capacity_ > 0 && sorted_ == capacity_ ? list_[sorted_ - 1].iteration_seconds : std::numeric_limits<double>::infinity();
    }

    [[nodiscard]] const std::vector<RankedLayout>& list() {
        sort();
        return list_;
    }
    std::vector<RankedLayout> take() {
        sort();
        sorted_ = 0;
        return std::move(list_);
    }

private:
    void sort() {
        const auto added = list_.begin() + static_cast<std::ptrdiff_t>(sorted_);
        std::stable_sort(added, list_.end(), before_);
        std::inplace_merge(list_.begin(), added, list_.end(), before_);
        if (list_.size() > capacity_) list_.resize(capacity_);
        sorted_ = list_.size();
    }

    std::size_t capacity_, batch_;
    Before before_;
    std::vector<RankedLayout> list_;
    std::size_t sorted_ = 0;  ///< number of sorted elements at the front of list_
};

/// In the order of ranks_before().
struct BeforeByObjective {
    Objective objective;
    bool operator()(const RankedLayout& a, const RankedLayout& b) const { return ranks_before(a, b, objective); }
    /// Compares only the first key, without the layouts.
    [[nodiscard]] bool surely_behind(const RankedLayout& a, const RankedLayout& b) const {
        return objective == Objective::memory ? a.peak_bytes > b.peak_bytes : a.iteration_seconds > b.iteration_seconds;
    }
};

/// The smaller peak first; of equal ones the simpler layout.
struct SmallerPeak {
    bool operator()(const RankedLayout& a, const RankedLayout& b) const;
};

/// The smallest layout of each of the `capacity` families (plan_families.hpp) with the smallest peaks. Does not depend on the order of the
/// offers.
class NearestMisses {
public:
    explicit NearestMisses(std::size_t capacity) : capacity_(capacity) {}

    void offer(const Layout& layout, std::int64_t peak);

    /// The largest peak with which a layout may still enter.
    [[nodiscard]] std::int64_t largest_peak() const {
        if (capacity_ == 0) return 0;
        return list_.size() == capacity_ ? list_.back().peak_bytes : std::numeric_limits<std::int64_t>::max();
    }

    /// Smallest peak first; time 0.
    [[nodiscard]] const std::vector<RankedLayout>& list() const { return list_; }
    std::vector<RankedLayout> take() { return std::exchange(list_, {}); }

private:
    std::size_t capacity_;
    std::vector<RankedLayout> list_;
};

/// The layouts with the smallest bounds. Shrinks to its capacity only occasionally; layouts after the last of a full list are dropped at
/// once.
class ContenderList {
public:
    explicit ContenderList(std::size_t capacity) : capacity_(capacity) {}

    void offer(const Layout& layout, const TimeEstimate& time, std::int64_t peak);
    void absorb(ContenderList&& other);
    /// Returns the list, sorted. Either all or none of several equal last bounds are kept, so that the result does not depend on the order
    /// of the offers.
    std::vector<Contender> take();
    /// The smallest bound of a layout that is not in the list.
    [[nodiscard]] double others() const { return others_; }

private:
    /// Keeps the smallest, in no order.
    void shrink();

    std::size_t capacity_;
    double others_ = std::numeric_limits<double>::infinity();
    std::vector<Contender> list_;
};

}  // namespace mgplan::planner
