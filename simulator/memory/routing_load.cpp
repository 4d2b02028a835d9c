#include "simulator/memory/routing_load.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>

#include "plan/text/errors.hpp"

namespace mgplan::simulator {
namespace {

/// Converts shares, in any unit, to the probabilities that an expert is among a token's choices.
std::vector<double> inclusion_probabilities(const std::vector<double>& shares, std::int64_t top_k) {
    std::vector<double> probabilities(shares.size(), 0);
    // Every token chooses the expert with the largest share while its part of the remaining choices exceeds 1.
    std::vector<std::size_t> order(shares.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return shares[a] > shares[b]; });
    double choices = static_cast<double>(top_k), sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    bool settled = false;  // true once the remaining choices are distributed in proportion to the shares
    for (std::size_t i = 0; i < order.size(); ++i) {
        const double share = shares[order[i]];
        double& p = probabilities[order[i]];
        if (share <= 0) {
            // Experts with share 0 take the choices that the others cannot.
            p = settled ? 0.0 : std::min(1.0, choices / static_cast<double>(order.size() - i));
            continue;
        }
        sum = std::max(sum, share);
        p = std::min(1.0, choices * share / sum);
        settled = p < 1;
        if (settled) continue;
        choices = std::max(0.0, choices - 1);
        sum -= share;
    }
    return probabilities;
}

std::vector<double> zipf_shares(std::int64_t experts, double exponent) {
    std::vector<double> shares;
    for (std::int64_t i = 1; i <= experts; ++i) shares.push_back(std::pow(static_cast<double>(i), -exponent));
    return shares;
}

/// Quantile of Pearson's type III with mean 0, variance 1 and this skewness, from the normal one.
double skewed_quantile(double z, double skewness) {
    if (skewness < 1e-6) return z;
    const double root = 1 + skewness * z / 6 - skewness * skewness / 36;
    return 2 / skewness * (std::pow(std::max(0.0, root), 3) - 1);
}

/// The sum of L of the values drawn without replacement: `tail` of Placement. Each expert is drawn independently with probability L/E, and
/// counts by its distance from the mean, which preserves mean and variance (Hájek 1960). Values count in buckets of `step`; those between
/// two are split in proportion.
std::vector<double> tail_of_sum(std::vector<double> values, std::int64_t local, double step, std::size_t buckets) {
    // Beyond this number, the least popular experts count by their mean: they hardly differ.
    constexpr std::size_t kMostConvolved = 4096;
    std::sort(values.begin(), values.end(), std::greater<>());
    const double experts = static_cast<double>(values.size()), chance = static_cast<double>(local) / experts;
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / experts;
    const std::size_t convolved = std::min(values.size(), kMostConvolved);
    double start = static_cast<double>(local) * mean;
    for (std::size_t i = convolved; i < values.size(); ++i) start += chance * (values[i] - mean);

    const auto last = static_cast<double>(buckets - 1);
    std::vector<double> mass(buckets, 0), next;
    const auto put = [&](std::vector<double>& into, double position, double amount) {
        const double bounded = std::clamp(position, 0.0, last);
        const auto below = std::min(static_cast<std::size_t>(bounded), buckets - 2);
        const double part = bounded - static_cast<double>(below);
        into[below] += amount * (1 - part);
        into[below + 1] += amount * part;
    };
    put(mass, start / step, 1);
    // From the least popular: values cut off at 0 are cut off before the popular ones are added.
    for (std::size_t i = convolved; i-- > 0;) {
        const double shift = (values[i] - mean) / step;
        next.assign(buckets, 0);
        for (std::size_t at = 0; at < buckets; ++at) {
            if (mass[at] == 0) continue;
            next[at] += mass[at] * (1 - chance);
            put(next, static_cast<double>(at) + shift, mass[at] * chance);
        }
        mass.swap(next);
    }
    std::vector<double> tail(buckets);
    double above = 0;
    for (std::size_t at = buckets; at-- > 0;) {
        tail[at] = above;
        above += mass[at];
    }
    return tail;
}

}  // namespace

double normal_upper_quantile(double p) {
    MGPLAN_ASSERT(p > 0 && p <= 0.5, "an upper tail");
    const auto ratio = [](double x, const std::array<double, 8>& over, const std::array<double, 8>& under) {
        double above = 0, below = 0;
        for (std::size_t i = over.size(); i-- > 0;) {
            above = above * x + over[i];
            below = below * x + under[i];
        }
        return above / below;
    };
    // Wichura, Algorithm AS 241, Applied Statistics 37, 1988: 16 digits.
    if (const double middle = 0.5 - p; middle <= 0.425) {
        return middle * ratio(0.180625 - middle * middle,
                              {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
                               4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3},
                              {1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
                               3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3});
    }
    const double root = std::sqrt(-std::log(p));
    if (root <= 5) {
        return ratio(root - 1.6,
                     {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
                      1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4},
                     {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
                      1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9});
    }
    return ratio(root - 5,
                 {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
                  2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7},
                 {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
                  1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15});
}

RoutingLoad::RoutingLoad(const ModelSpec& model, RoutingSkew skew) : moe_(*model.moe), skew_(std::move(skew)) {
    const auto decoders = std::count(model.moe_layers.begin(), model.moe_layers.end(), true);
    layers_ = decoders + (model.is_moe_layer(model.layers) ? model.mtp_layers : 0);
    if (skew_.kind == RoutingKind::zipf)
        probabilities_.push_back(inclusion_probabilities(zipf_shares(moe_.experts, skew_.exponent), moe_.top_k));
    else if (skew_.kind == RoutingKind::histogram)
        for (const auto& counts : skew_.counts) probabilities_.push_back(inclusion_probabilities(counts, moe_.top_k));
    else
        probabilities_.emplace_back(static_cast<std::size_t>(moe_.experts),
                                    static_cast<double>(moe_.top_k) / static_cast<double>(moe_.experts));
    if (moe_.capacity_factor > 0) {
        // No expert takes more of a rank's tokens than its capacity; the rest is dropped (moe_utils.py, get_capacity).
        const double most = moe_.capacity_factor * static_cast<double>(moe_.top_k) / static_cast<double>(moe_.experts);
        for (auto& layer : probabilities_)
            for (double& p : layer) p = std::min(p, most);
    }
}

const RoutingLoad::Placement& RoutingLoad::placement(std::int64_t ep) {
    auto [entry, fresh] = placements_.try_emplace(ep);
    if (fresh) entry->second = probabilities_.size() > 1 ? place_as_counted(ep) : place_at_random(ep);
    return entry->second;
}

RoutingLoad::Placement RoutingLoad::place_at_random(std::int64_t ep) const {
    constexpr std::size_t kBuckets = 1024;
    std::vector<double> values = probabilities_.front();
    const double experts = static_cast<double>(values.size()), local = experts / static_cast<double>(ep);
    Placement place;
    const double total = std::accumulate(values.begin(), values.end(), 0.0), mean = total / experts;
    place.mean = total / static_cast<double>(ep);
    double square = 0, cube = 0;
    for (const double value : values) {
        square += (value - mean) * (value - mean);
        cube += (value - mean) * (value - mean) * (value - mean);
    }
    const std::int64_t held = moe_.experts / ep;
    std::sort(values.begin(), values.end(), std::greater<>());
    place.most = std::accumulate(values.begin(), values.begin() + held, 0.0);
    if (ep == 1 || values.front() - values.back() < 1e-12) return place;
    // Moments of the sum of a simple random sample (Cochran, Sampling Techniques, theorem 2.2, and its third moment).
    const double variance = local * (experts - local) / (experts * (experts - 1)) * square;
    place.deviation = std::sqrt(variance);
    if (experts > 2)
        place.skewness = local * (experts - local) * (experts - 2 * local) / (experts * (experts - 1) * (experts - 2)) * cube /
                         (variance * place.deviation);
    place.step = place.most / static_cast<double>(kBuckets - 1);
    place.tail = tail_of_sum(std::move(values), held, place.step, kBuckets);
    return place;
}

RoutingLoad::Placement RoutingLoad::place_as_counted(std::int64_t ep) const {
    Placement place;
    const std::int64_t held = moe_.experts / ep;
    double total = 0;
    for (const auto& layer : probabilities_) {
        for (std::int64_t rank = 0; rank < ep; ++rank) {
            const auto begin = layer.begin() + rank * held;
            const double sum = std::accumulate(begin, begin + held, 0.0);
            const std::size_t here = place.by_layer.size();
            place.before.push_back(here < static_cast<std::size_t>(ep) ? 0.0
                                                                       : place.before[here - static_cast<std::size_t>(ep)] +
                                                                             place.by_layer[here - static_cast<std::size_t>(ep)]);
            place.by_layer.push_back(sum);
            place.most = std::max(place.most, sum);
            total += sum;
        }
    }
    place.mean = total / static_cast<double>(place.by_layer.size());
    return place;
}

RoutingLoad::Level RoutingLoad::level(const RoutedJob& job, RoutingQuantile quantile) {
    Level level;
    level.quantile = skew_.kind == RoutingKind::worst ? RoutingQuantile::worst : quantile;
    level.job = job;
    const double senders = static_cast<double>(job.ep * job.etp), tokens = static_cast<double>(job.tokens);
    const std::int64_t held = moe_.experts / job.ep, ranks_of_stage = job.world / (job.etp * job.pp);
    const auto local = static_cast<double>(held), top_k = static_cast<double>(moe_.top_k);
    level.even_rows = tokens * top_k * static_cast<double>(job.etp);
    level.worst_rows = senders * tokens * std::min(top_k, local);
    if (moe_.capacity_factor > 0) {
        const double capacity = std::ceil(tokens * top_k / static_cast<double>(moe_.experts) * moe_.capacity_factor);
        level.worst_rows = std::min(level.worst_rows, senders * local * capacity);
        if (moe_.pad_to_capacity) level.worst_rows = level.even_rows;
    }
    level.worst_rows = std::max(level.worst_rows, level.even_rows);
    if (job.ep == 1 || (moe_.capacity_factor > 0 && moe_.pad_to_capacity) || level.quantile == RoutingQuantile::worst ||
        skew_.kind == RoutingKind::balanced)
        return level;

    level.placement = &placement(job.ep);
    const bool random = level.placement->deviation > 0;
    const double miss = (quantile == RoutingQuantile::p50 ? 0.5 : 0.01) / (random ? 2 : 1);
    // Number of ranks with different experts or layers; of ranks with different tokens; of passes through a MoE layer.
    const double holders = static_cast<double>(job.ep), stages = static_cast<double>(job.pp);
    const auto stage_ranks = static_cast<double>(ranks_of_stage), microbatches = static_cast<double>(job.microbatches);
    const double passes = static_cast<double>(layers_);
    level.saved_z = normal_upper_quantile(miss / (stage_ranks * stages * microbatches));
    level.peak_z = normal_upper_quantile(miss / (stage_ranks * passes * microbatches));
    level.local = local;
    level.spread = choice_spread(local);
    double fullest = level.placement->mean;
    if (random) {
        level.placement_z = normal_upper_quantile(miss / (holders * stages));
        const auto& tail = level.placement->tail;
        const auto at = std::partition_point(tail.begin(), tail.end(), [&](double above) { return above > miss / (holders * passes); });
        fullest = std::min(level.placement->most, static_cast<double>(at - tail.begin()) * level.placement->step);
    }
    level.peak = rows_of(level, fullest, level.peak_z, 1) / level.even_rows;
    return level;
}

double RoutingLoad::busiest(std::int64_t ep) {
    if (ep == 1 || skew_.kind == RoutingKind::balanced || skew_.kind == RoutingKind::uniform) return 1;
    if (moe_.capacity_factor > 0 && moe_.pad_to_capacity) return 1;
    const double even = static_cast<double>(moe_.top_k) / static_cast<double>(ep);
    if (skew_.kind == RoutingKind::worst) {
        const double most = static_cast<double>(std::min(moe_.top_k, moe_.experts / ep)) / even;
        return moe_.capacity_factor > 0 ? std::max(1.0, std::min(most, moe_.capacity_factor)) : most;
    }
    const Placement& place = placement(ep);
    double copies = place.mean;
    if (!place.by_layer.empty()) {
        double sum = 0;
        for (auto layer = place.by_layer.begin(); layer != place.by_layer.end(); layer += ep) sum += *std::max_element(layer, layer + ep);
        copies = sum * static_cast<double>(ep) / static_cast<double>(place.by_layer.size());
    } else if (place.deviation > 0) {
        // The mean of a nonnegative number is the integral of its tail; the tail of the largest of ep numbers is at most ep times the
        // single tail, limited to 1.
        copies = 0;
        for (const double above : place.tail) copies += place.step * std::min(1.0, static_cast<double>(ep) * above);
        copies = std::clamp(copies, place.mean, place.most);
    }
    return std::max(1.0, copies / even);
}

double RoutingLoad::choice_spread(double held) const {
    const double experts = static_cast<double>(moe_.experts), top_k = static_cast<double>(moe_.top_k);
    if (experts < 2) return 0;
    double spread = (1 - held / experts) * experts / (experts - 1);
    if (moe_.groups > 1 && moe_.group_top_k < moe_.groups) {
        // A token's choices are in `chosen` of the groups. With j of those on this rank it draws from j·size experts of its own out of
        // chosen·size; a rank inside one group has that group chosen or not.
        const double groups = static_cast<double>(moe_.groups), chosen = static_cast<double>(moe_.group_top_k), size = experts / groups;
        const double pool = chosen * size;
        const double even = top_k * held / experts;
        double limited = 0;
        if (held <= size) {
            const double hit = chosen / groups, mean = top_k * held / pool;
            const double inside = pool > 1 ? mean * (1 - held / pool) * (pool - top_k) / (pool - 1) : 0;
            limited = hit * inside + mean * mean * hit * (1 - hit);
        } else {
            const double own = held / size, mean = chosen * own / groups;
            const double hits = mean * (1 - own / groups) * (groups - chosen) / (groups - 1);
            const double square = hits + mean * mean;
            const double inside = pool > 1 ? top_k * (pool - top_k) / (pool - 1) * (mean / chosen - square / (chosen * chosen)) : 0;
            limited = inside + top_k * top_k / (chosen * chosen) * hits;
        }
        if (even < held) spread = std::max(0.0, limited) / (even * (1 - even / held));
    }
    return spread;
}

double RoutingLoad::rows_of(const Level& level, double choices, double z, double draws) {
    const double tokens = static_cast<double>(level.job.tokens * level.job.ep * level.job.etp);
    const double variance = std::max(0.0, choices * (1 - choices / level.local)) * level.spread;
    return std::clamp(tokens * choices + z * std::sqrt(tokens * variance / draws), level.even_rows, level.worst_rows);
}

RowFactors RoutingLoad::rows(const Level& level, std::span<const LiveMixtures> live) const {
    // Sums over layers of their weights (number of microbatches), of the squares and of the cubes.
    double passes = 0, squares = 0, cubes = 0, held = 0;
    for (const auto& part : live) {
        const auto layers = static_cast<double>(part.layers), microbatches = static_cast<double>(part.microbatches);
        held += layers;
        passes += layers * microbatches;
        squares += layers * microbatches * microbatches;
        cubes += layers * microbatches * microbatches * microbatches;
    }
    if (held == 0 || level.even_rows <= 0) return {};
    if (level.quantile == RoutingQuantile::worst) return {level.worst_rows / level.even_rows, level.worst_rows / level.even_rows};
    if (level.placement == nullptr) return {};
    const Placement& place = *level.placement;
    double mean = place.mean;
    RowFactors factors{.peak = level.peak};
    if (!place.by_layer.empty()) {
        const std::int64_t ep = level.job.ep;
        const std::int64_t known = std::ssize(place.by_layer) / ep;
        double fullest = 0;
        mean = 0;
        for (std::int64_t rank = 0; rank < ep; ++rank) {
            double sum = 0;
            for (const auto& part : live) {
                // Multi-token prediction comes after the last counted layer, and is assumed to be equal to it.
                const std::int64_t first = std::min(part.first, known - 1), last = std::min(part.first + part.layers, known) - 1;
                const auto at = [&](const std::vector<double>& of, std::int64_t layer) {
                    return of[static_cast<std::size_t>(layer * ep + rank)];
                };
                const double layers = at(place.before, last) + at(place.by_layer, last) - at(place.before, first) +
                                      at(place.by_layer, last) * static_cast<double>(part.layers - (last - first + 1));
                sum += layers * static_cast<double>(part.microbatches);
                for (std::int64_t layer = first; layer <= last; ++layer) fullest = std::max(fullest, at(place.by_layer, layer));
            }
            if (passes > 0) mean = std::max(mean, sum / passes);
        }
        factors.peak = rows_of(level, fullest, level.peak_z, 1) / level.even_rows;
    } else if (place.deviation > 0 && passes > 0) {
        const double root = std::sqrt(squares);
        const double z = skewed_quantile(level.placement_z, place.skewness * cubes / (squares * root));
        mean = std::min(place.most, place.mean + z * place.deviation * root / passes);
    }
    factors.saved = passes > 0 ? std::min(factors.peak, rows_of(level, mean, level.saved_z, passes) / level.even_rows) : 1;
    return factors;
}

}  // namespace mgplan::simulator
