#include "runtime/measurement/op_timer.hpp"

#include <algorithm>

#include "plan/text/errors.hpp"

namespace mgplan::runtime {
namespace {

/// A step of many microbatches is read in pieces, so that marks do not grow without bound: about a million bytes of events.
constexpr std::size_t kMostMarks = std::size_t{1} << 16;

}  // namespace

void OpTimer::begin(std::string_view name) {
    run(times_[name]);
    ++running_->count;
}

void OpTimer::go_on(std::string_view name) {
    const auto begun = times_.find(name);
    if (begun != times_.end() && running_ != &begun->second) run(begun->second);
}

void OpTimer::run(Time& time) {
    if (marks_ == nullptr) end();
    running_ = &time;
    if (marks_ == nullptr) {
        since_ = Clock::now();
        return;
    }
    if (marked_.size() == kMostMarks) settle();
    marks_->mark();
    marked_.push_back(running_);
}

void OpTimer::end() {
    if (running_ == nullptr) return;
    if (marks_ == nullptr) {
        running_->seconds += std::chrono::duration<double>(Clock::now() - since_).count();
    } else {
        marks_->mark();
        marked_.push_back(nullptr);
    }
    running_ = nullptr;
}

void OpTimer::settle() {
    if (marked_.empty()) return;
    if (marked_.back() != nullptr) {
        marks_->mark();  // the end of the last so far
        marked_.push_back(nullptr);
    }
    const std::vector<double> seconds = marks_->take();
    MGPLAN_ASSERT(seconds.size() + 1 == marked_.size(), "there is one time between two marks");
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        if (marked_[i] != nullptr) marked_[i]->seconds += seconds[i];
    }
    marked_.clear();
}

std::vector<OpSeconds> OpTimer::times() const {
    std::vector<OpSeconds> result;
    for (const auto& [name, time] : times_) result.push_back({std::string(name), time.count, time.seconds});
    std::stable_sort(result.begin(), result.end(), [](const OpSeconds& a, const OpSeconds& b) { return a.seconds > b.seconds; });
    return result;
}

}  // namespace mgplan::runtime
