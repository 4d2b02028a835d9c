#include "planner/batch_sizes.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

namespace mgplan::planner {
namespace {

std::int64_t rounded_up(std::int64_t n, std::int64_t step) {
    return (n + step - 1) / step * step;
}

bool has_legal_layout(Workload workload, const SearchSpace& space, std::int64_t batch) {
    workload.batch.global_batch = batch;
    CandidateCounts counts;
    LayoutVisitor visitor{[](const Layout&) {}};
    visitor.enter = [](const Layout&, std::int64_t) { return false; };
    for (const Prefix& prefix : prefixes(workload, space, counts)) {
        visit_layouts(workload, space, prefix, counts, visitor);
        if (counts.legal > 0) return true;
    }
    return false;
}

/// The products dp·micro-batch of the space's layouts. A batch must be a multiple of one of them.
std::set<std::int64_t> steps_of(const Workload& workload, const SearchSpace& space) {
    std::set<std::int64_t> steps;
    CandidateCounts counts;
    for (const Prefix& prefix : prefixes(workload, space, counts)) {
        const std::int64_t dp = workload.world / (prefix.tp * prefix.cp * prefix.pp);
        if (space.micro_batch.empty()) steps.insert(dp);
        for (const std::int64_t micro_batch : space.micro_batch) steps.insert(dp * micro_batch);
    }
    return steps;
}

}  // namespace

std::int64_t assumed_batch(const ModelSpec& model, std::int64_t world, std::int64_t sequence) {
    constexpr std::int64_t kTokens = std::int64_t{4} << 20, kSequencesPerGpu = 8;
    const double growth = std::clamp(static_cast<double>(world) / 1024.0, 1.0, 4.0);
    const auto batch = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(kTokens) * growth) / sequence);
    if (model.moe) return rounded_up(std::max(batch, kSequencesPerGpu * world), 4 * world);
    if (world <= batch) return rounded_up(batch, 4 * world <= batch ? 4 * world : world);
    std::int64_t odd = world;
    while (odd % 2 == 0) odd /= 2;
    return rounded_up(batch, odd);
}

std::optional<std::int64_t> suiting_batch(std::int64_t batch, std::int64_t world) {
    constexpr std::int64_t kPartsOfBatch = 8;
    for (const std::int64_t step : {4 * world, world}) {
        const std::int64_t below = batch / step * step, above = below + step;
        const std::int64_t nearest = below > 0 && batch - below <= above - batch ? below : above;
        if (std::abs(nearest - batch) <= batch / kPartsOfBatch) return nearest;
    }
    return std::nullopt;
}

std::int64_t batch_for_worlds(std::int64_t batch, const std::vector<std::int64_t>& worlds) {
    constexpr std::int64_t kPartsOfBatch = 8;
    const std::int64_t most = batch + batch / kPartsOfBatch;
    std::int64_t odd = 1, power = 1;
    for (const std::int64_t world : worlds) {
        const std::int64_t of_two = world & -world;
        power = std::max(power, of_two);
        const std::int64_t part = world / of_two / std::gcd(odd, world / of_two);
        if (part > most / odd) return batch;
        odd *= part;
    }
    if (batch % odd == 0) return batch;
    for (; power > 0; power /= 2) {
        if (odd <= most / power && rounded_up(batch, odd * power) <= most) return rounded_up(batch, odd * power);
    }
    return batch;
}

std::vector<std::int64_t> searched_micro_batches(std::int64_t global_batch, std::int64_t dp) {
    constexpr std::int64_t kLargest = 16;
    std::vector<std::int64_t> found{1};
    if (global_batch % dp != 0) return found;
    for (std::int64_t size = 2; size <= kLargest; ++size) {
        if (global_batch / dp % size == 0) found.push_back(size);
    }
    return found;
}

std::vector<std::int64_t> nearest_legal_batches(const Workload& workload, const SearchSpace& space) {
    // The schedule or a rule beyond dp may refuse a multiple, so each is tried, as far as some dozens of them.
    constexpr int kMostTried = 64;
    const std::set<std::int64_t> steps = steps_of(workload, space);
    std::vector<std::int64_t> found;
    if (steps.empty()) return found;
    for (const int sign : {-1, 1}) {
        std::int64_t batch = workload.batch.global_batch;
        for (int tried = 0; tried < kMostTried; ++tried) {
            std::int64_t next = 0;
            for (const std::int64_t step : steps) {
                const std::int64_t multiple = sign > 0 ? (batch / step + 1) * step : (batch - 1) / step * step;
                if (multiple > 0 && (next == 0 || sign * (multiple - next) < 0)) next = multiple;
            }
            if (next == 0) break;
            batch = next;
            if (!has_legal_layout(workload, space, batch)) continue;
            found.push_back(batch);
            break;
        }
    }
    return found;
}

}  // namespace mgplan::planner
