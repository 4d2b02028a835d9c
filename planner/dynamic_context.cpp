#include "planner/dynamic_context.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "plan/parameters/layer_kinds.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/price/recorded_flops.hpp"

namespace mgplan::planner {
namespace {

constexpr std::size_t kMostDocuments = 65'536;
constexpr std::int64_t kMostPlaces = std::int64_t{1} << 27;  ///< documents times ranks
constexpr double kSlack = 0.05;                              ///< share of the busiest rank's work within which a group is balanced
constexpr double kMostOfABucket = 1.1;                       ///< factor on the mean bucket's work

using Documents = std::deque<std::int64_t>;

/// BalancedCPScheduler over one batch.
class Scheduler {
public:
    Scheduler(std::int64_t most_on_a_rank, std::int64_t ranks) : most_(most_on_a_rank), ranks_(static_cast<std::size_t>(ranks)) {}

    /// Places documents, longest first, until the ranks are balanced; the rest stays in `documents`.
    DocumentGroup next_group(std::vector<std::int64_t>& documents) {
        std::vector<Documents> buckets = buckets_of(documents);
        lists_.assign(ranks_, {});
        work_.assign(ranks_, 0.0);
        group_of_.assign(ranks_, kNone);
        members_.clear();
        std::int64_t before = 0;
        bool check = false;
        while (!buckets.empty()) {
            const auto bucket = std::find_if(buckets.begin(), buckets.end(),
                                             [&](const Documents& each) { return !each.empty() && has_place(needed(each.front())); });
            if (bucket == buckets.end()) break;
            const std::int64_t document = bucket->front(), wanted = needed(document);
            if (before == 0) before = wanted;
            for (const std::size_t rank : members_[place(wanted)]) {
                lists_[rank].push_back(document);
                work_[rank] += work(document, wanted);
            }
            bucket->pop_front();
            while (!buckets.empty() && buckets.front().empty()) buckets.erase(buckets.begin());
            check = check || wanted < before;
            const auto [least, most] = std::minmax_element(work_.begin(), work_.end());
            if (check && !buckets.empty() && *most - *least <= kSlack * *most) break;
        }
        documents.clear();
        for (const Documents& each : buckets) documents.insert(documents.end(), each.begin(), each.end());
        trim(documents);
        while (std::any_of(lists_.begin(), lists_.end(), [](const auto& list) { return list.empty(); })) widen_one();
        DocumentGroup group;
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            group.tokens.push_back(lists_[rank]);
            group.ranks.emplace_back(lists_[rank].size(), std::ssize(members_[group_at(rank)]));
        }
        return group;
    }

private:
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

    [[nodiscard]] std::int64_t needed(std::int64_t tokens) const { return ranks_of_document(tokens, most_); }
    [[nodiscard]] static double work(std::int64_t tokens, std::int64_t over) {
        return static_cast<double>(tokens) * static_cast<double>(tokens) / static_cast<double>(over);
    }

    /// Buckets of equal work, one for each number of ranks that occurs.
    [[nodiscard]] std::vector<Documents> buckets_of(const std::vector<std::int64_t>& documents) const {
        std::set<std::int64_t> sizes;
        double total = 0;
        for (const std::int64_t tokens : documents) {
            sizes.insert(needed(tokens));
            total += work(tokens, needed(tokens));
        }
        const double target = total / static_cast<double>(sizes.size());
        std::vector<Documents> buckets;
        Documents current;
        double sum = 0;
        std::int64_t remaining = std::ssize(sizes);
        for (std::size_t i = 0; i < documents.size(); ++i) {
            const double each = work(documents[i], needed(documents[i]));
            const auto left = static_cast<std::int64_t>(documents.size() - i);
            if (!current.empty() && (sum + each > target * kMostOfABucket || left <= remaining - std::ssize(buckets))) {
                buckets.push_back(std::move(current));
                current = {};
                sum = 0;
                --remaining;
            }
            current.push_back(documents[i]);
            sum += each;
        }
        if (!current.empty()) buckets.push_back(std::move(current));
        return buckets;
    }

    [[nodiscard]] std::size_t group_at(std::size_t rank) const {
        for (std::size_t group = 0; group < members_.size(); ++group) {
            if (std::find(members_[group].begin(), members_[group].end(), rank) != members_[group].end()) return group;
        }
        MGPLAN_ASSERT(false, "each rank is in a group");
        return 0;
    }

    [[nodiscard]] std::int64_t free_ranks() const { return std::count(group_of_.begin(), group_of_.end(), kNone); }
    [[nodiscard]] bool has_place(std::int64_t wanted) const {
        return free_ranks() >= wanted ||
               std::any_of(members_.begin(), members_.end(), [&](const auto& ranks) { return std::ssize(ranks) == wanted; });
    }

    /// The group that takes the next document on `wanted` ranks: the one with least work, or a new one if free ranks have less.
    std::size_t place(std::int64_t wanted) {
        std::size_t best = kNone;
        double least = std::numeric_limits<double>::infinity();
        for (std::size_t group = 0; group < members_.size(); ++group) {
            if (std::ssize(members_[group]) != wanted) continue;
            double most = 0;
            for (const std::size_t rank : members_[group]) most = std::max(most, work_[rank]);
            if (most < least) {
                least = most;
                best = group;
            }
        }
        // Free ranks have no work yet.
        if (free_ranks() < wanted || !(least > 0)) return best;
        std::vector<std::size_t> fresh;
        for (std::size_t rank = 0; rank < ranks_ && std::ssize(fresh) < wanted; ++rank) {
            if (group_of_[rank] == kNone) fresh.push_back(rank);
        }
        for (const std::size_t rank : fresh) group_of_[rank] = members_.size();
        members_.push_back(std::move(fresh));
        return members_.size() - 1;
    }

    /// Removes the last document of the busiest group as long as that balances the ranks.
    void trim(std::vector<std::int64_t>& documents) {
        while (true) {
            const auto [least, most] = std::minmax_element(work_.begin(), work_.end());
            const double slack = *most - *least;
            if (slack <= kSlack * *most || *least == 0) return;
            const auto busiest = static_cast<std::size_t>(std::max_element(work_.begin(), work_.end()) - work_.begin());
            if (lists_[busiest].size() <= 1) return;
            const std::int64_t document = lists_[busiest].back();
            const auto& ranks = members_[group_of_[busiest]];
            const double each = work(document, needed(document));
            std::vector<double> without = work_;
            for (const std::size_t rank : ranks) without[rank] -= each;
            const auto [low, high] = std::minmax_element(without.begin(), without.end());
            if (!(*high - *low < slack)) return;
            work_ = std::move(without);
            for (const std::size_t rank : ranks) lists_[rank].pop_back();
            documents.push_back(document);
        }
    }

    /// Doubles the first of the smallest groups, and moves the work of the later ranks.
    void widen_one() {
        std::size_t first = 0;
        for (std::size_t group = 0; group < members_.size(); ++group) {
            if (members_[group].size() < members_[first].size()) first = group;
        }
        const std::size_t size = members_.at(first).size(), more = std::min(2 * size, ranks_) - size;
        const auto empty = static_cast<std::size_t>(
            std::find_if(lists_.begin(), lists_.end(), [](const auto& list) { return list.empty(); }) - lists_.begin());
        if (more == 0 || empty + more > ranks_)
            throw ConfigError(fmt::format(
                "dynamic context parallelism: {} of {} ranks get no document, and Megatron-LM cannot widen a group by {}; use a "
                "larger batch, fewer ranks or another --max-seqlen-per-dp-cp-rank",
                std::count_if(lists_.begin(), lists_.end(), [](const auto& list) { return list.empty(); }), ranks_, more));
        const std::size_t end = members_[first].back() + 1;
        std::rotate(lists_.begin() + static_cast<std::ptrdiff_t>(end), lists_.begin() + static_cast<std::ptrdiff_t>(empty),
                    lists_.begin() + static_cast<std::ptrdiff_t>(empty + more));
        std::rotate(work_.begin() + static_cast<std::ptrdiff_t>(end), work_.begin() + static_cast<std::ptrdiff_t>(empty),
                    work_.begin() + static_cast<std::ptrdiff_t>(empty + more));
        for (std::size_t rank = end - size; rank < end + more; ++rank) {
            lists_[rank] = lists_[end - 1];
            work_[rank] = work(lists_[rank].front(), static_cast<std::int64_t>(size + more));
        }
        for (std::size_t group = first + 1; group < members_.size(); ++group) {
            for (std::size_t& rank : members_[group]) rank += more;
        }
        for (std::size_t i = 0; i < more; ++i) members_[first].push_back(end + i);
    }

    std::int64_t most_;
    std::size_t ranks_;
    std::vector<std::vector<std::int64_t>> lists_;  ///< by rank
    std::vector<double> work_;
    std::vector<std::size_t> group_of_;
    std::vector<std::vector<std::size_t>> members_;
};

/// Seconds of one document on a number of ranks, and of the rest of a step besides its microbatches: a parabola through three measured
/// lengths for each number of ranks.
class DocumentSeconds {
public:
    DocumentSeconds(const Workload& workload, const Layout& layout, std::int64_t most_on_a_rank)
        : workload_(workload), layout_(layout), most_(most_on_a_rank) {}

    [[nodiscard]] double of(std::int64_t tokens, std::int64_t over) {
        auto [entry, fresh] = known_.try_emplace(over);
        if (fresh) measure(over, entry->second);
        const Points& at = entry->second;
        // Lagrange's parabola through three lengths.
        const auto x = static_cast<double>(tokens);
        double sum = 0;
        for (std::size_t i = 0; i < at.size(); ++i) {
            double part = at[i].seconds;
            for (std::size_t j = 0; j < at.size(); ++j) {
                if (j != i) part *= (x - at[j].tokens) / (at[i].tokens - at[j].tokens);
            }
            sum += part;
        }
        return std::max(sum, 0.0);
    }

    /// A job with documents of `tokens` tokens on `over` ranks each, in `microbatches` microbatches.
    [[nodiscard]] std::pair<Workload, Layout> job(std::int64_t tokens, std::int64_t over, std::int64_t microbatches) const {
        Workload work = workload_;
        work.batch.lengths = {};
        const std::int64_t unit = 2 * over * layout_.sizes.tp;  // divisor required by context and sequence parallelism
        work.batch.sequence = std::max(unit, (tokens + unit - 1) / unit * unit);
        Layout layout = layout_;
        layout.sizes.cp = over;
        layout.micro_batch = 1;
        layout.num_microbatches = microbatches;
        work.batch.global_batch = layout.dp() * microbatches;
        return {std::move(work), std::move(layout)};
    }

    [[nodiscard]] double once(std::int64_t tokens, std::int64_t over) const {
        return std::max(0.0, 2 * seconds_of(tokens, over, 1) - seconds_of(tokens, over, 2));
    }

private:
    struct Point {
        double tokens = 0, seconds = 0;
    };
    using Points = std::array<Point, 3>;

    [[nodiscard]] double seconds_of(std::int64_t tokens, std::int64_t over, std::int64_t microbatches) const {
        const auto [work, layout] = job(tokens, over, microbatches);
        simulator::CostModel model(work);
        return model.exact_seconds(layout);
    }

    void measure(std::int64_t over, Points& points) const {
        const std::int64_t most = most_ * over;
        const std::array lengths{over == 1 ? most / 16 : most / 2, over == 1 ? most / 2 : most / 4 * 3, most};
        std::int64_t before = 0;
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            const std::int64_t tokens = job(std::max(lengths[i], before + 1), over, 1).first.batch.sequence;
            before = tokens;
            points[i] = {static_cast<double>(tokens), seconds_of(tokens, over, 2) - seconds_of(tokens, over, 1)};
        }
    }

    const Workload& workload_;
    const Layout& layout_;
    std::int64_t most_;
    std::map<std::int64_t, Points> known_;
};

}  // namespace

std::int64_t ranks_of_document(std::int64_t tokens, std::int64_t most_on_a_rank) {
    std::int64_t ranks = 1;
    while (ranks * most_on_a_rank < tokens) ranks *= 2;
    return ranks;
}

std::vector<DocumentGroup> document_groups(std::vector<std::int64_t> documents, std::int64_t most_on_a_rank, std::int64_t ranks) {
    std::stable_sort(documents.begin(), documents.end(), std::greater<>());
    MGPLAN_ASSERT(documents.empty() || ranks_of_document(documents.front(), most_on_a_rank) <= ranks, "the longest document has a place");
    Scheduler scheduler(most_on_a_rank, ranks);
    std::vector<DocumentGroup> groups;
    while (!documents.empty()) groups.push_back(scheduler.next_group(documents));
    return groups;
}

std::vector<std::int64_t> documents_of_step(const BatchSpec& batch) {
    // Documents longer than a sequence are divided (simulator/price/packed_attention.hpp).
    std::map<std::int64_t, double, std::greater<>> counts;
    const double most = *std::max_element(batch.lengths.counts.begin(), batch.lengths.counts.end());
    double tokens = 0;
    for (std::size_t i = 0; i < batch.lengths.tokens.size(); ++i) {
        const std::int64_t length = batch.lengths.tokens[i], whole = length / batch.sequence, rest = length % batch.sequence;
        const double documents = batch.lengths.counts[i] / most;
        if (whole > 0) counts[batch.sequence] += documents * static_cast<double>(whole);
        if (rest > 0) counts[rest] += documents;
        tokens += documents * static_cast<double>(length);
    }
    const double scale = static_cast<double>(batch.global_batch) * static_cast<double>(batch.sequence) / tokens;
    double all = 0;
    for (const auto& [length, count] : counts) all += count * scale;
    if (all > static_cast<double>(kMostDocuments))
        throw MissingFactError(fmt::format("dynamic context parallelism of {} documents a step, more than {}",
                                           with_thousands(std::llround(std::min(all, 1e18))),
                                           with_thousands(static_cast<std::int64_t>(kMostDocuments))));
    std::vector<std::int64_t> documents;
    double sum = 0;
    for (const auto& [length, count] : counts) {
        sum += count * scale;
        documents.resize(std::max(documents.size(), static_cast<std::size_t>(std::llround(sum))), length);
    }
    if (documents.empty()) documents.push_back(counts.begin()->first);
    return documents;
}

simulator::Prediction predict_dynamic_context(const Workload& workload, const Layout& layout, std::int64_t most_on_a_rank) {
    const std::int64_t ranks = layout.dp() * layout.sizes.cp;
    if (ranks % 2 != 0)  // parallel_state.py, initialize_model_parallel
        throw ConfigError(fmt::format(
            "--hybrid-context-parallel needs an even number of ranks of dp·cp, and there are {}; use another tp or world", ranks));
    // Megatron-core's layers with a state exchange heads over the groups of the command's cp, not over a document's ranks.
    const LayerKinds kinds = layer_kinds(workload.model);
    if (std::any_of(kinds.mixers.begin(), kinds.mixers.end(), [](const LayerHalf& mixer) { return mixer.carries_state; }))
        throw MissingFactError("dynamic context parallelism over layers with a state along the sequence");
    const std::vector<std::int64_t> documents = documents_of_step(workload.batch);
    if (std::ssize(documents) > kMostPlaces / ranks)
        throw MissingFactError(fmt::format("dynamic context parallelism of {} documents a step over {} ranks, too many to place",
                                           with_thousands(std::ssize(documents)), with_thousands(ranks)));
    if (const std::int64_t needed = ranks_of_document(documents.front(), most_on_a_rank); needed > ranks)
        throw ConfigError(fmt::format(
            "--max-seqlen-per-dp-cp-rank = {}: a document of {} needs {} ranks, and dp·cp has {}; use a larger one, or more ranks",
            most_on_a_rank, counted(documents.front(), "token"), needed, ranks));
    DocumentSeconds seconds(workload, layout, std::min(most_on_a_rank, documents.front()));
    double passes = 0;
    std::map<std::int64_t, std::int64_t> longest;  // by number of ranks
    for (const DocumentGroup& group : document_groups(documents, most_on_a_rank, ranks)) {
        double slowest = 0;
        for (std::size_t rank = 0; rank < group.tokens.size(); ++rank) {
            double sum = 0;
            for (std::size_t i = 0; i < group.tokens[rank].size(); ++i) {
                const std::int64_t tokens = group.tokens[rank][i], over = group.ranks[rank][i];
                sum += seconds.of(tokens, over);
                longest[over] = std::max(longest[over], tokens);
            }
            slowest = std::max(slowest, sum);
        }
        passes += slowest;
    }
    std::optional<simulator::Prediction> prediction;
    double once = 0;
    for (const auto& [over, tokens] : longest) {
        const auto [work, one] = seconds.job(tokens, over, 1);
        if (auto broken = broken_messages(work, one); !broken.empty()) throw ConfigError(std::move(broken));
        simulator::CostModel model(work);
        simulator::Prediction found = model.predict_exactly(one);
        if (!prediction || found.memory.deciding_bytes() > prediction->memory.deciding_bytes()) prediction = found;
        once = std::max(once, seconds.once(tokens, over));
    }
    simulator::TimePrediction& time = prediction->time;
    const double step = passes + once, factor = step / time.iteration_seconds;
    for (double* part : {&time.iteration_seconds, &time.adverse_seconds, &time.interval_low, &time.interval_high, &time.at_least_seconds,
                         &time.compute_seconds, &time.recompute_seconds, &time.host_seconds, &time.bubble_seconds, &time.imbalance_seconds,
                         &time.optimizer_seconds, &time.exposed.tp, &time.exposed.cp, &time.exposed.ep, &time.exposed.dp, &time.exposed.pp})
        *part *= factor;
    for (simulator::ModuleWork& work : time.modules.works) work = {factor * work.seconds, factor * work.flops, factor * work.bytes};
    const double of_all_gpus = step * static_cast<double>(layout.sizes.world), before = time.model_tflops_per_gpu;
    time.tokens_per_second_per_gpu =
        static_cast<double>(std::accumulate(documents.begin(), documents.end(), std::int64_t{0})) / of_all_gpus;
    time.model_tflops_per_gpu = simulator::model_flops(workload.model, workload.batch) / of_all_gpus / 1e12;
    if (before > 0) {
        time.mfu *= time.model_tflops_per_gpu / before;
        time.hfu *= time.model_tflops_per_gpu / before;
    }
    return *prediction;
}

}  // namespace mgplan::planner
