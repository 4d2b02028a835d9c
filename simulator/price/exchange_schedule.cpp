#include "simulator/price/exchange_schedule.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
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
    double compute = 0;  ///< with what is exposed of other groups
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

/// The steps of a pair of passes with the seconds of each.
class PairSteps {
public:
    void compute(double seconds) { add(StepKind::op, 0, seconds); }
    void start(int number, double seconds) { add(StepKind::start, number, seconds); }
    void wait(int number) { add(StepKind::wait, number, 0); }

    [[nodiscard]] double exposed(double taken) const {
        const StepPrice price = [this](const PieceStep& step) { return seconds_[static_cast<std::size_t>(&step - steps_.data())]; };
        const PassSeconds pass = replay(steps_, price, [taken](const PieceStep&) { return taken; });
        double sum = 0;
        for (const GroupSeconds& each : pass.exposed) sum += each.ep;
        return sum;
    }

private:
    void add(StepKind kind, int number, double seconds) {
        PieceStep step;
        step.kind = kind;
        step.group = LayerGroup::ep;
        step.number = number;
        steps_.push_back(step);
        seconds_.push_back(seconds);
    }

    PieceSteps steps_;
    std::vector<double> seconds_;
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
    // Behind the last wait of either exchange.
    const auto behind = [](PieceSteps::const_iterator from, PieceSteps::const_iterator to) {
        while (to != from && !over_experts(*(to - 1))) --to;
        return to;
    };
    const auto end_first = behind(begin_first, product), end_second = behind(begin_second, mixture.end());
    const std::array<Segment, 5> parts{
        play(mixture.begin(), begin_first, price, overlap_cost), play(begin_first, end_first, price, overlap_cost),
        play(end_first, begin_second, price, overlap_cost), play(begin_second, end_second, price, overlap_cost),
        play(end_second, mixture.end(), price, overlap_cost)};
    // What is computed beside an exchange within the pass belongs to the experts; an exchange among what is run again stays where it is.
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
    // What is exposed grows by as much with each further layer once there are layers on either side.
    const auto of_layers = [&](int layers) {
        PairSteps steps;
        constexpr int kExchanges = 4;
        for (int layer = 0; layer < layers; ++layer) {
            const int combine_back = kExchanges * layer, dispatch = combine_back + 1, dispatch_back = dispatch + 1,
                      combine = dispatch_back + 1;
            steps.start(combine_back, backward.first);
            if (layer > 0) steps.wait(combine - kExchanges);
            steps.compute(forward.outside);
            steps.start(dispatch, forward.first);
            steps.wait(combine_back);
            steps.compute(backward.experts + (puts_off ? 0 : backward.expert_weights));
            steps.start(dispatch_back, backward.second);
            if (puts_off) steps.compute(backward.expert_weights);
            steps.wait(dispatch);
            steps.compute(forward.experts);
            steps.start(combine, forward.second);
            steps.wait(dispatch_back);
            steps.compute(backward.outside + backward.outside_weights);
        }
        return steps.exposed(taken);
    };
    constexpr int kInside = 3;
    return of_layers(kInside + 1) - of_layers(kInside);
}

double unpaired_share(std::int64_t pp, std::int64_t vpp, std::int64_t microbatches, std::int64_t group_size) {
    const std::int64_t all = microbatches * vpp;
    const std::int64_t alone = pp == 1 ? 1 : vpp == 1 ? pp / 2 : pp - 1 + (vpp - 1) * group_size + 1;
    return static_cast<double>(std::min(all, alone)) / static_cast<double>(all);
}

}  // namespace mgplan::simulator
