#include "planner/kept_layouts.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "plan/layout/layout_switches.hpp"
#include "planner/plan_families.hpp"

namespace mgplan::planner {
namespace {

/// Sort key: fewer switches first.
auto switch_order(const Layout& l) {
    const LayoutSwitches on = l.switches ? *l.switches : LayoutSwitches{};
    return std::tuple(on.dispatcher.has_value() + on.overlap_tp + on.overlap_moe + on.bf16_gradients + on.bf16_moments, on.dispatcher,
                      on.overlap_tp, on.overlap_moe, on.bf16_gradients, on.bf16_moments);
}

/// Sort key: fewer parallel axes and features first.
auto simplicity(const Layout& l) {
    const ParallelSizes& s = l.sizes;
    return std::tuple((s.tp > 1) + (s.cp > 1) + (s.ep > 1) + (s.pp > 1) + (l.vpp > 1) + (l.recompute != Recompute::none), s.pp, l.vpp, s.tp,
                      s.cp, s.ep, s.etp, l.micro_batch, l.sequence_parallel, l.cp_comm_type, l.recompute, l.recompute_modules,
                      l.sizes.order.axes(), l.recompute_method, l.recompute_num_layers, l.cuda_graphs, switch_order(l));
}

/// Compares figures; if they are equal, which is rare, the simpler layout comes first.
template <class Figures>
bool comes_before(const Figures& a, const Layout& a_layout, const Figures& b, const Layout& b_layout) {
    return a == b ? simplicity(a_layout) < simplicity(b_layout) : a < b;
}

bool contends_before(const Contender& a, const Contender& b) {
    return comes_before(std::tuple(a.at_least, a.peak_bytes), a.layout, std::tuple(b.at_least, b.peak_bytes), b.layout);
}

}  // namespace

bool ranks_before(const RankedLayout& a, const RankedLayout& b, Objective objective) {
    if (objective == Objective::memory)
        return comes_before(std::tuple(a.peak_bytes, a.iteration_seconds), a.layout, std::tuple(b.peak_bytes, b.iteration_seconds),
                            b.layout);
    return comes_before(std::tuple(a.iteration_seconds, a.peak_bytes), a.layout, std::tuple(b.iteration_seconds, b.peak_bytes), b.layout);
}

bool SmallerPeak::operator()(const RankedLayout& a, const RankedLayout& b) const {
    return comes_before(std::tuple(a.peak_bytes), a.layout, std::tuple(b.peak_bytes), b.layout);
}

void NearestMisses::offer(const Layout& layout, std::int64_t peak) {
    if (capacity_ == 0 || peak > largest_peak()) return;
    RankedLayout candidate{layout, 0, peak};
    const auto alike = std::find_if(list_.begin(), list_.end(), [&](const RankedLayout& each) { return same_family(each.layout, layout); });
    if (alike != list_.end()) {
        if (!SmallerPeak{}(candidate, *alike)) return;
        list_.erase(alike);
    }
    list_.insert(std::upper_bound(list_.begin(), list_.end(), candidate, SmallerPeak{}), std::move(candidate));
    if (list_.size() > capacity_) list_.pop_back();
}

void ContenderList::offer(const Layout& layout, const TimeEstimate& time, std::int64_t peak) {
    if (time.at_least >= others_) return;
    if (capacity_ == 0) {
        others_ = time.at_least;
        return;
    }
    list_.push_back({layout, time.at_least, time.seconds, peak});
    if (list_.size() >= 2 * capacity_) shrink();
}

void ContenderList::absorb(ContenderList&& other) {
    others_ = std::min(others_, other.others_);
    for (Contender& each : other.list_) list_.push_back(std::move(each));
    if (list_.size() >= 2 * capacity_) shrink();
}

std::vector<Contender> ContenderList::take() {
    shrink();
    std::erase_if(list_, [this](const Contender& each) { return each.at_least >= others_; });
    std::sort(list_.begin(), list_.end(), contends_before);
    return std::move(list_);
}

void ContenderList::shrink() {
    if (list_.size() <= capacity_) return;
    const auto behind = list_.begin() + static_cast<std::ptrdiff_t>(capacity_);
    std::nth_element(list_.begin(), behind, list_.end(), contends_before);
    others_ = std::min(others_, behind->at_least);
    list_.resize(capacity_);
}

}  // namespace mgplan::planner
