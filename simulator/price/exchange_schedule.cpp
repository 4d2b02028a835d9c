#include "simulator/price/exchange_schedule.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mgplan::simulator {
namespace {

bool over_experts(const PieceStep& step) {
    return step.kind != StepKind::op && (step.group == LayerGroup::ep || step.group == LayerGroup::etp) && step.pass != StepPass::recompute;
}

bool multiplies_experts(const PieceStep& step) {
    return step.kind == StepKind::op && step.op.grouped.groups > 0 && step.pass != StepPass::recompute;
}

struct Segment {
    double compute = 0;  ///< including exposed communication of other groups
    double weights = 0;  ///< part of compute
    double exchange = 0;
};

Segment play(PieceSteps::const_iterator from, PieceSteps::const_iterator to, const StepPrice& price, const StepPrice& overlap_cost) {
    const PassSeconds pass = replay(PieceSteps(from, to), price, overlap_cost);
    Segment segment;
    for (const GroupSeconds& seconds : pass.exposed) segment.exchange += seconds.ep;
    segment.compute = pass.total - segment.exchange;
    segment.weights = pass.compute[static_cast<std::size_t>(StepPass::weight_gradient)];
    return segment;
}

/// Steps of paired passes over several layers in order: their kinds, and for each the entry of AllSeconds that is its duration.
class PairSteps {
public:
    enum Seconds : std::uint8_t {
        none,
        forward_outside,
        forward_first,
        forward_experts,
        forward_second,
        backward_first,
        backward_experts,
        backward_second,
        backward_weights,
        backward_outside,
        kinds_of_seconds
    };
    using AllSeconds = std::array<double, kinds_of_seconds>;

    PairSteps(int layers, bool puts_off) {
        constexpr int kExchanges = 4;
        for (int layer = 0; layer < layers; ++layer) {
            const int combine_back = kExchanges * layer, dispatch = combine_back + 1, dispatch_back = dispatch + 1,
                      combine = dispatch_back + 1;
            add(StepKind::start, combine_back, backward_first);
            if (layer > 0) add(StepKind::wait, combine - kExchanges, none);
            add(StepKind::op, 0, forward_outside);
            add(StepKind::start, dispatch, forward_first);
            add(StepKind::wait, combine_back, none);
            add(StepKind::op, 0, backward_experts);
            add(StepKind::start, dispatch_back, backward_second);
            if (puts_off) add(StepKind::op, 0, backward_weights);
            add(StepKind::wait, dispatch, none);
            add(StepKind::op, 0, forward_experts);
            add(StepKind::start, combine, forward_second);
            add(StepKind::wait, dispatch_back, none);
            add(StepKind::op, 0, backward_outside);
        }
    }

    /// Exposed seconds of exchanges, if each takes the share `taken` of the speed of concurrent ops.
    [[nodiscard]] double exposed(const AllSeconds& seconds, double taken) const {
        const StepPrice price = [&](const PieceStep& step) { return seconds[takes_[static_cast<std::size_t>(&step - steps_.data())]]; };
        const PassSeconds pass = replay(steps_, price, [taken](const PieceStep&) { return taken; });
        double sum = 0;
        for (const GroupSeconds& each : pass.exposed) sum += each.ep;
        return sum;
    }

private:
    void add(StepKind kind, int number, Seconds seconds) {
        PieceStep step;
        step.kind = kind;
        step.group = LayerGroup::ep;
        step.number = number;
        steps_.push_back(step);
        takes_.push_back(seconds);
    }

    PieceSteps steps_;
    std::vector<Seconds> takes_;
};

}  // namespace

ExchangeNodes cut_at_exchanges(const PieceSteps& mixture, const StepPrice& price, const StepPrice& overlap_cost) {
    ExchangeNodes nodes;
    const auto product = std::find_if(mixture.begin(), mixture.end(), multiplies_experts);
    const auto last_product = std::find_if(mixture.rbegin(), mixture.rend(), multiplies_experts).base();
    const auto begin_first = std::find_if(mixture.begin(), product, over_experts);
    const auto begin_second = std::find_if(last_product, mixture.end(), over_experts);
    if (product == mixture.end() || begin_first == product || begin_second == mixture.end()) {
        const Segment all = play(mixture.begin(), mixture.end(), price, overlap_cost);
        nodes.outside = all.compute - all.weights;
        nodes.outside_weights = all.weights;
        nodes.first = all.exchange;
        return nodes;
    }
    // Returns the position after the last wait of the exchange.
    const auto behind = [](PieceSteps::const_iterator from, PieceSteps::const_iterator to) {
        while (to != from && !over_experts(*(to - 1))) --to;
        return to;
    };
    const auto end_first = behind(begin_first, product), end_second = behind(begin_second, mixture.end());
    const std::array<Segment, 5> parts{
        play(mixture.begin(), begin_first, price, overlap_cost), play(begin_first, end_first, price, overlap_cost),
        play(end_first, begin_second, price, overlap_cost), play(begin_second, end_second, price, overlap_cost),
        play(end_second, mixture.end(), price, overlap_cost)};
    // Computation concurrent with an exchange of the pass counts with the experts; exchanges inside recomputed parts stay in their part.
    for (const Segment* part : {&parts[0], &parts[4]}) {
        nodes.outside += part->compute + part->exchange - part->weights;
        nodes.outside_weights += part->weights;
    }
    for (const Segment* part : {&parts[1], &parts[2], &parts[3]}) {
        nodes.experts += part->compute - part->weights;
        nodes.expert_weights += part->weights;
    }
    nodes.experts += parts[2].exchange;
    nodes.first = parts[1].exchange;
    nodes.second = parts[3].exchange;
    return nodes;
}

double shown_exchanges(const ExchangeNodes& forward, const ExchangeNodes& backward, bool puts_off, double taken) {
    PairSteps::AllSeconds seconds{};
    seconds[PairSteps::forward_outside] = forward.outside;
    seconds[PairSteps::forward_first] = forward.first;
    seconds[PairSteps::forward_experts] = forward.experts;
    seconds[PairSteps::forward_second] = forward.second;
    seconds[PairSteps::backward_first] = backward.first;
    seconds[PairSteps::backward_experts] = backward.experts + (puts_off ? 0 : backward.expert_weights);
    seconds[PairSteps::backward_second] = backward.second;
    seconds[PairSteps::backward_weights] = backward.expert_weights;
    seconds[PairSteps::backward_outside] = backward.outside + backward.outside_weights;
    // With layers on both sides, each further layer adds the same exposed time.
    constexpr int kInside = 3;
    struct Both {
        PairSteps more, inside;
        explicit Both(bool off) : more(kInside + 1, off), inside(kInside, off) {}
    };
    static const Both at_once(false), put_off(true);  // built once: a search calls this often
    const Both& steps = puts_off ? put_off : at_once;
    return steps.more.exposed(seconds, taken) - steps.inside.exposed(seconds, taken);
}

double unpaired_share(std::int64_t pp, std::int64_t vpp, std::int64_t microbatches, std::int64_t group_size) {
    const std::int64_t all = microbatches * vpp;
    const std::int64_t alone = pp == 1 ? 1 : vpp == 1 ? pp / 2 : pp - 1 + (vpp - 1) * group_size + 1;
    return static_cast<double>(std::min(all, alone)) / static_cast<double>(all);
}

}  // namespace mgplan::simulator
