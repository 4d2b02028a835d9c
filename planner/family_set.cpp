#include "planner/family_set.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "planner/plan_families.hpp"
#include "planner/search.hpp"

namespace mgplan::planner {

std::size_t family_hash(const Layout& layout) {
    const ParallelSizes& s = layout.sizes;
    std::uint64_t hash = 0;
    for (const std::int64_t field : {s.tp, s.cp, s.ep, s.etp, s.pp, static_cast<std::int64_t>(layout.recompute)})
        hash = (hash ^ static_cast<std::uint64_t>(field)) * 0x9e3779b97f4a7c15U;
    return static_cast<std::size_t>(hash ^ (hash >> 32));
}

FamilySet::FamilySet(std::vector<FamilyPoint> points) {
    for (FamilyPoint& point : points) add(std::move(point));
}

std::size_t FamilySet::place_of(const Layout& layout) {
    if (last_ < points_.size() && same_family(points_[last_].fastest.layout, layout)) return last_;
    std::vector<std::size_t>& alike = places_[family_hash(layout)];
    const auto found =
        std::find_if(alike.begin(), alike.end(), [&](std::size_t place) { return same_family(points_[place].fastest.layout, layout); });
    if (found == alike.end()) {
        alike.push_back(points_.size());
        last_ = points_.size();
    } else {
        last_ = *found;
    }
    return last_;
}

void FamilySet::offer(const Layout& layout, double iteration_seconds, std::int64_t peak_bytes) {
    const std::size_t place = place_of(layout);
    if (place == points_.size()) {
        points_.push_back({RankedLayout{layout, iteration_seconds, peak_bytes}, 1});
        return;
    }
    FamilyPoint& family = points_[place];
    ++family.members;
    if (iteration_seconds > family.fastest.iteration_seconds) return;
    RankedLayout candidate{layout, iteration_seconds, peak_bytes};
    if (ranks_before(candidate, family.fastest, Objective::throughput)) family.fastest = std::move(candidate);
}

void FamilySet::add(FamilyPoint point) {
    const std::size_t place = place_of(point.fastest.layout);
    if (place == points_.size()) {
        points_.push_back(std::move(point));
        return;
    }
    FamilyPoint& family = points_[place];
    family.members += point.members;
    if (ranks_before(point.fastest, family.fastest, Objective::throughput)) family.fastest = std::move(point.fastest);
}

void FamilySet::absorb(FamilySet&& other) {
    for (FamilyPoint& point : other.take()) add(std::move(point));
}

std::vector<FamilyPoint> FamilySet::take() {
    std::vector<FamilyPoint> points = std::move(points_);
    points_.clear();
    places_.clear();
    last_ = 0;
    std::sort(points.begin(), points.end(),
              [](const FamilyPoint& a, const FamilyPoint& b) { return ranks_before(a.fastest, b.fastest, Objective::throughput); });
    return points;
}

}  // namespace mgplan::planner
