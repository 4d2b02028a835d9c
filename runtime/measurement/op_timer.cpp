#include "runtime/measurement/op_timer.hpp"

#include <algorithm>

namespace mgplan::runtime {

void OpTimer::begin(std::string_view name) {
    end();
    running_ = &times_[name];
    ++running_->count;
    since_ = Clock::now();
}

void OpTimer::end() {
    if (running_ != nullptr) running_->spent += Clock::now() - since_;
    running_ = nullptr;
}

std::vector<OpSeconds> OpTimer::times() const {
    std::vector<OpSeconds> result;
    for (const auto& [name, time] : times_)
        result.push_back({std::string(name), time.count, std::chrono::duration<double>(time.spent).count()});
    std::stable_sort(result.begin(), result.end(), [](const OpSeconds& a, const OpSeconds& b) { return a.seconds > b.seconds; });
    return result;
}

}  // namespace mgplan::runtime
