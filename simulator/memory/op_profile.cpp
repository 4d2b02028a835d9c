#include "simulator/memory/op_profile.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "plan/text/errors.hpp"

namespace mgplan::simulator {
std::int64_t sum(const BytesByCategory& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::int64_t OpProfile::net_total() const {
    return sum(net);
}

TraceProfiles::TraceProfiles(std::span<const model::AllocationRecord> trace) {
    std::vector<Change> returns;
    returns.reserve(trace.size());
    changes_.reserve(2 * trace.size());
    const auto earlier = [](const Change& a, const Change& b) { return a.when < b.when; };
    for (const auto& tensor : trace) {
        if (tensor.bytes == 0) continue;  // a policy removed it from the trace
        changes_.push_back({tensor.taken, false, &tensor});
        if (tensor.returned >= 0) returns.push_back({tensor.returned, true, &tensor});
    }
    // Sorted by the times of the allocations, except for additions by policies.
    if (!std::is_sorted(changes_.begin(), changes_.end(), earlier)) std::stable_sort(changes_.begin(), changes_.end(), earlier);
    std::stable_sort(returns.begin(), returns.end(), earlier);
    const auto takes = std::ssize(changes_);
    changes_.insert(changes_.end(), returns.begin(), returns.end());
    std::inplace_merge(changes_.begin(), changes_.begin() + takes, changes_.end(), earlier);
}

std::span<const TraceProfiles::Change> TraceProfiles::changes(std::int64_t begin, std::int64_t end) const {
    const auto at = [&](std::int64_t time) {
        return std::lower_bound(changes_.begin(), changes_.end(), time,
                                [](const Change& change, std::int64_t when) { return change.when < when; });
    };
    return {at(begin), at(std::max(begin, end))};
}

OpProfile TraceProfiles::of(std::int64_t begin, std::int64_t end) const {
    OpProfile profile;
    std::int64_t live = 0;
    for (const Change& change : changes(begin, end)) {
        const auto category = static_cast<std::size_t>(change.tensor->category);
        const std::int64_t bytes = change.returned ? -change.tensor->bytes : change.tensor->bytes;
        live += bytes;
        profile.net[category] += bytes;
        profile.high_water[category] = std::max(profile.high_water[category], profile.net[category]);
        if (live > profile.peak) {
            profile.peak = live;
            profile.at_peak = profile.net;
            profile.peak_tensor = change.tensor->name;
        }
    }
    return profile;
}

OpProfile change_of(model::MemoryCategory category, std::int64_t bytes, std::string_view tensor) {
    OpProfile profile;
    const auto index = static_cast<std::size_t>(category);
    profile.net[index] = bytes;
    if (bytes <= 0) return profile;
    profile.at_peak[index] = profile.high_water[index] = profile.peak = bytes;
    profile.peak_tensor = tensor;
    return profile;
}

OpProfile then(const OpProfile& a, const OpProfile& b) {
    OpProfile both = a;
    const std::int64_t between = a.net_total();
    if (between + b.peak > a.peak) {
        both.peak = between + b.peak;
        both.peak_tensor = b.peak_tensor;
        for (std::size_t i = 0; i < both.at_peak.size(); ++i) both.at_peak[i] = a.net[i] + b.at_peak[i];
    }
    for (std::size_t i = 0; i < both.net.size(); ++i) {
        both.high_water[i] = std::max(a.high_water[i], a.net[i] + b.high_water[i]);
        both.net[i] = a.net[i] + b.net[i];
    }
    return both;
}

OpProfile repeat(const OpProfile& a, std::int64_t times) {
    MGPLAN_ASSERT(times >= 1, "work is done at least once");
    // If each repetition adds memory, the last one has the peak; otherwise the first.
    OpProfile before;  // all repetitions except the last
    for (std::size_t i = 0; i < a.net.size(); ++i) {
        before.net[i] = (times - 1) * a.net[i];
        before.high_water[i] = std::max<std::int64_t>(0, a.high_water[i] + std::max<std::int64_t>(0, (times - 2) * a.net[i]));
        if (times == 1) before.high_water[i] = 0;
    }
    if (times > 1) {
        const std::int64_t ahead = std::max<std::int64_t>(0, (times - 2) * a.net_total());
        before.peak = a.peak + ahead;
        before.peak_tensor = a.peak_tensor;
        for (std::size_t i = 0; i < a.net.size(); ++i) before.at_peak[i] = a.at_peak[i] + (ahead > 0 ? (times - 2) * a.net[i] : 0);
    }
    return then(before, a);
}

void append(OpProfile& work, const OpProfile& next, std::int64_t times) {
    work = then(work, repeat(next, times));
}

OpProfile keeping(const OpProfile& forward, std::int64_t stream, bool input) {
    OpProfile profile = forward;
    profile.net = change_of(model::MemoryCategory::activations, input ? stream : 0).net;
    return profile;
}

MemoryDelta delta_of(const OpProfile& profile) {
    return {profile.net_total(), profile.peak};
}

PassDeltas deltas_of(const PassProfile& profile) {
    return {delta_of(profile.forward), delta_of(profile.backward)};
}

}  // namespace mgplan::simulator
