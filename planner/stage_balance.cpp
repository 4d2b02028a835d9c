#include "planner/stage_balance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "plan/layout/pipeline_layout.hpp"

namespace mgplan::planner {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr double kPrecision = 1e-9;
constexpr double kRounding = 1e-12;
/// Growth factor of the first bounds until one can be met.
constexpr double kGrowth = 1.25;

/// The layers that a rank takes after its first chunk, one by one: each goes to the chunk that is fastest so far.
struct Tail {
    std::vector<int> chunks;      ///< chunk of each layer
    std::vector<double> seconds;  ///< seconds of these chunks together with c layers
    int least = 0;                ///< minimum number of layers for which no chunk is empty
};

/// End of each rank's first chunk, and number of layers after it.
struct Cut {
    std::vector<int> ends;   ///< by rank
    std::vector<int> tails;  ///< by rank; empty with vpp = 1
    double slowest = 0;
};

/// Known results for a rank with a first chunk: number of layers after it that fit, and that do not.
struct MemoryRoom {
    int fits = -1;
    int misfits = std::numeric_limits<int>::max();
};

/// The problem with its MTP layers on one pipeline rank.
class Balance {
public:
    Balance(const StageBalanceProblem& problem, int mtp_rank)
        : problem_(problem), pp_(problem.pp), vpp_(problem.vpp), layers_(static_cast<int>(problem.layers)), mtp_rank_(mtp_rank) {
        for (int rank = 0; rank < pp_; ++rank) tails_.push_back(make_tail(rank));
    }

    /// Nothing if no split's slowest rank takes less than `beat`.
    [[nodiscard]] std::optional<Cut> best(double beat) {
        double all = 0;
        for (int rank = 0; rank < pp_; ++rank) {
            for (int chunk = 0; chunk < vpp_; ++chunk) all += problem_.seconds(rank, contents(rank, chunk, 0, 0));
        }
        double longest_layer = 0;
        for (int i = 0; i < layers_; ++i) {
            const double one = problem_.seconds(0, contents(0, 0, i, 1)) - problem_.seconds(0, contents(0, 0, i, 0));
            all += one;
            longest_layer = std::max(longest_layer, one);
        }
        double low = 0, high = all / pp_ + longest_layer / 2;
        std::optional<Cut> found = solve(high);
        while (!found) {
            if (high > beat || high > all * kGrowth) return std::nullopt;
            low = high;
            high *= kGrowth;
            found = solve(high);
        }
        high = found->slowest;
        while (high - low > kPrecision * high) {
            const double middle = (low + high) / 2;
            if (auto better = solve(middle)) {
                found = std::move(better);
                high = found->slowest;
            } else {
                low = middle;
            }
        }
        return found->slowest < beat ? found : std::nullopt;
    }

    /// A cut with the same slowest rank and first chunks as equal as possible.
    [[nodiscard]] Cut evened(Cut cut) {
        if (vpp_ == 1) return cut;
        const int average = layers_ / (pp_ * vpp_);
        for (int width = 1; width < layers_; ++width) {
            shortest_ = average - width + 1;
            longest_ = average + width;
            if (auto even = solve(cut.slowest)) return *even;
        }
        return cut;
    }

    [[nodiscard]] StageSplit split(const Cut& cut) const {
        std::vector<std::string> stages(static_cast<std::size_t>(pp_) * static_cast<std::size_t>(vpp_));
        for (int rank = 0; rank < pp_; ++rank) {
            const auto r = static_cast<std::size_t>(rank);
            const int begin = rank == 0 ? 0 : cut.ends[r - 1];
            const auto chunks = chunks_of(rank, begin, cut.ends[r] - begin, cut.tails[r]);
            for (int v = 0; v < vpp_; ++v) {
                const StageChunk& chunk = chunks[static_cast<std::size_t>(v)];
                std::string& text = stages[static_cast<std::size_t>(v) * static_cast<std::size_t>(pp_) + r];
                if (chunk.embedding) text += 'E';
                text.append(static_cast<std::size_t>(chunk.decoders), 't').append(static_cast<std::size_t>(chunk.mtp), 'm');
                if (chunk.loss) text += 'L';
            }
        }
        StageSplitRequest request;
        request.layers = problem_.layers;
        request.mtp_layers = problem_.mtp_layers;
        request.pp = pp_;
        request.vpp = vpp_;
        request.pipeline_layout = compact_pipeline_layout(stages);
        return make_stage_split(request);
    }

private:
    /// A chunk with `decoders` from the `first` on, plus embedding, loss and MTP of its position.
    [[nodiscard]] StageChunk contents(int rank, int chunk, int first, int decoders) const {
        StageChunk made;
        made.embedding = rank == 0 && chunk == 0;
        made.loss = rank == pp_ - 1 && chunk == vpp_ - 1;
        made.mtp = rank == mtp_rank_ && chunk == vpp_ - 1 ? problem_.mtp_layers : 0;
        made.decoders = decoders;
        made.first_decoder = first;
        return made;
    }
    [[nodiscard]] bool takes_decoders(int rank, int chunk) const {
        return problem_.mtp_layers == 0 || chunk < vpp_ - 1 || rank <= mtp_rank_;
    }
    static bool empty(const StageChunk& chunk) { return !chunk.embedding && !chunk.loss && chunk.mtp == 0 && chunk.decoders == 0; }

    [[nodiscard]] Tail make_tail(int rank) const {
        Tail tail;
        std::vector<int> counts(static_cast<std::size_t>(vpp_), 0);
        std::vector<double> seconds(counts.size(), 0);
        const auto price = [&](int v) {
            const int count = counts[static_cast<std::size_t>(v)];
            return problem_.seconds(rank, contents(rank, v, layers_ - count, count));
        };
        double all = 0;
        bool any = false;
        for (int v = 1; v < vpp_; ++v) {
            if (empty(contents(rank, v, 0, 0))) {
                ++tail.least;
                if (!takes_decoders(rank, v)) tail.least = layers_ + 1;  // no decoder can be there
            } else {
                all += seconds[static_cast<std::size_t>(v)] = price(v);
            }
            any = any || takes_decoders(rank, v);
        }
        tail.seconds.push_back(all);
        for (int c = 0; any && c < layers_; ++c) {
            int target = -1;
            for (int v = 1; v < vpp_; ++v) {
                if (!takes_decoders(rank, v)) continue;
                if (target < 0 || seconds[static_cast<std::size_t>(v)] <= seconds[static_cast<std::size_t>(target)]) target = v;
            }
            ++counts[static_cast<std::size_t>(target)];
            all -= seconds[static_cast<std::size_t>(target)];
            all += seconds[static_cast<std::size_t>(target)] = price(target);
            tail.chunks.push_back(target);
            tail.seconds.push_back(all);
        }
        return tail;
    }

    /// Equal first chunks share a key.
    [[nodiscard]] std::uint64_t key_of(int rank, int begin, int count) const {
        const auto from = static_cast<std::uint64_t>(std::min<std::int64_t>(begin, problem_.alike_from));
        return (static_cast<std::uint64_t>(rank) << 32) | (from << 16) | static_cast<std::uint64_t>(count);
    }

    double head_seconds(int rank, int begin, int count) {
        const auto [entry, fresh] = heads_.try_emplace(key_of(rank, begin, count), 0.0);
        if (fresh) entry->second = problem_.seconds(rank, contents(rank, 0, begin, count));
        return entry->second;
    }

    [[nodiscard]] std::vector<StageChunk> chunks_of(int rank, int begin, int count, int tail) const {
        std::vector<int> counts(static_cast<std::size_t>(vpp_), 0);
        for (int c = 0; c < tail; ++c)
            ++counts[static_cast<std::size_t>(tails_[static_cast<std::size_t>(rank)].chunks[static_cast<std::size_t>(c)])];
        std::vector<StageChunk> chunks{contents(rank, 0, begin, count)};
        for (int v = 1; v < vpp_; ++v) {
            const int held = counts[static_cast<std::size_t>(v)];
            chunks.push_back(contents(rank, v, layers_ - held, held));
        }
        return chunks;
    }

    /// Maximum number of layers after a first chunk within `seconds` and memory; less than the tail's `least` if not even those fit.
    int room(int rank, int begin, int count, double seconds) {
        const Tail& tail = tails_[static_cast<std::size_t>(rank)];
        const auto above = std::upper_bound(tail.seconds.begin(), tail.seconds.end(), seconds);
        int most = static_cast<int>(above - tail.seconds.begin()) - 1;
        MemoryRoom& memory = memory_[key_of(rank, begin, count)];
        most = std::min(most, memory.misfits - 1);
        while (most > memory.fits && most >= tail.least) {
            if (problem_.fits(rank, chunks_of(rank, begin, count, most)))
                memory.fits = most;
            else
                memory.misfits = most--;
        }
        return most;
    }

    /// Tolerance for sums in different orders.
    static double left_of(double bound, double seconds) { return bound * (1 + kRounding) - seconds; }

    /// The dynamic programme for one bound.
    std::optional<Cut> solve(double bound) {
        const auto width = static_cast<std::size_t>(layers_) + 1;
        const auto ranks = static_cast<std::size_t>(pp_);
        std::vector<double> score((ranks + 1) * width, kNever);
        std::vector<int> from((ranks + 1) * width, -1);
        score[0] = 0;
        int least = 0;
        for (const Tail& tail : tails_) least += tail.least;
        if (least > layers_) return std::nullopt;
        for (int rank = 0; rank < pp_; ++rank) {
            const auto r = static_cast<std::size_t>(rank);
            const Tail& tail = tails_[r];
            for (int begin = 0; begin <= layers_; ++begin) {
                const double before = score[r * width + static_cast<std::size_t>(begin)];
                if (before == kNever) continue;
                for (int count = 0; begin + count <= layers_; ++count) {
                    if (count > 0 && !takes_decoders(rank, 0)) break;
                    if (empty(contents(rank, 0, begin, count))) continue;
                    if (vpp_ > 1 && takes_decoders(rank, 0)) {
                        if (count > longest_) break;
                        if (count < shortest_) continue;
                    }
                    const double head = head_seconds(rank, begin, count);
                    const double rest = left_of(bound, head);
                    if (rest < 0) break;
                    const int behind = room(rank, begin, count, rest);
                    if (behind < tail.least) break;  // more decoders do not fit either
                    const double all = head + tail.seconds.front();
                    const double made = before + (vpp_ > 1 ? static_cast<double>(behind) : -all * all);
                    const std::size_t at = (r + 1) * width + static_cast<std::size_t>(begin + count);
                    if (made <= score[at]) continue;
                    score[at] = made;
                    from[at] = begin;
                }
            }
        }
        // End of the first chunks.
        int end = -1;
        const auto distance = [&](int at) { return std::abs(static_cast<double>(at) - static_cast<double>(layers_) / vpp_); };
        for (int at = vpp_ > 1 ? static_cast<int>(problem_.alike_from) : layers_; at <= layers_; ++at) {
            const double reached = score[ranks * width + static_cast<std::size_t>(at)];
            if (reached == kNever) continue;
            if (vpp_ > 1 && (reached < layers_ - at || layers_ - at < least)) continue;
            if (end < 0 || distance(at) < distance(end)) end = at;
        }
        if (end < 0) return std::nullopt;
        Cut cut;
        cut.ends.resize(ranks);
        for (int rank = pp_, at = end; rank > 0; --rank) {
            cut.ends[static_cast<std::size_t>(rank - 1)] = at;
            at = from[static_cast<std::size_t>(rank) * width + static_cast<std::size_t>(at)];
        }
        hand_out(cut, bound, layers_ - end);
        return cut;
    }

    /// Distributes the layers after the first chunks over the ranks, each to the one that is fastest with it.
    void hand_out(Cut& cut, double bound, int left) {
        std::vector<double> heads;
        std::vector<int> rooms;
        for (int rank = 0; rank < pp_; ++rank) {
            const auto r = static_cast<std::size_t>(rank);
            const int begin = rank == 0 ? 0 : cut.ends[r - 1];
            const int count = cut.ends[r] - begin;
            heads.push_back(head_seconds(rank, begin, count));
            rooms.push_back(room(rank, begin, count, left_of(bound, heads.back())));
            cut.tails.push_back(tails_[r].least);
            left -= tails_[r].least;
        }
        const auto load = [&](std::size_t r, std::size_t more) {
            return heads[r] + tails_[r].seconds[static_cast<std::size_t>(cut.tails[r]) + more];
        };
        for (; left > 0; --left) {
            std::size_t target = cut.tails.size();
            for (std::size_t r = 0; r < cut.tails.size(); ++r) {
                if (cut.tails[r] < rooms[r] && (target == cut.tails.size() || load(r, 1) < load(target, 1))) target = r;
            }
            ++cut.tails[target];
        }
        for (std::size_t r = 0; r < cut.tails.size(); ++r) cut.slowest = std::max(cut.slowest, load(r, 0));
    }

    const StageBalanceProblem& problem_;
    int pp_, vpp_, layers_, mtp_rank_;
    int shortest_ = 0, longest_ = std::numeric_limits<int>::max();  ///< limits on the decoders of a first chunk, with vpp > 1
    std::vector<Tail> tails_;
    std::unordered_map<std::uint64_t, double> heads_;
    std::unordered_map<std::uint64_t, MemoryRoom> memory_;
};

}  // namespace

std::optional<BalancedStages> balance_stages(const StageBalanceProblem& problem) {
    if (problem.layers < 1 || problem.layers > kMostBalancedLayers || problem.pp < 2 || problem.pp > kMostBalancedLayers ||
        problem.vpp < 1 || std::int64_t{problem.pp} * problem.vpp > 2 * kMostBalancedLayers)
        return std::nullopt;
    std::optional<BalancedStages> best;
    double slowest = std::numeric_limits<double>::infinity();
    // A rank between the MTP layers' rank and the last would have an empty last chunk.
    for (int mtp_rank = problem.pp - 1; mtp_rank >= problem.pp - (problem.mtp_layers > 0 ? 2 : 1); --mtp_rank) {
        Balance balance(problem, mtp_rank);
        // Better by more than the precision of the bound.
        const auto cut = balance.best(slowest * (1 - 2 * kPrecision));
        if (!cut) continue;
        const Cut even = balance.evened(*cut);
        slowest = cut->slowest;
        best = BalancedStages{balance.split(even), even.slowest};
    }
    return best;
}

}  // namespace mgplan::planner
