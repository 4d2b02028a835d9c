#pragma once
// What the tests of the layers share: a small model, weights under their names, one rank to run on, and the check of every
// gradient by finite differences.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/layers/layer_half.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parameters/parameters.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::model {

/// Two layers small enough for finite differences, with every bias, LayerNorm, and nothing special about attention.
inline ModelSpec layer_model() {
    return tests::gpt_of(
        "layer", {.layers = 2, .hidden = 8, .ffn = 6, .heads = 4, .head_dim = 4, .vocab = 11, .vocab_divisor = 8, .max_positions = 9});
}

/// One rank alone, on the CPU in fp64.
class OneRank {
public:
    OneRank() : alone_(world_.view(0).join("alone", std::vector<std::int32_t>{0})) {
        context.device = &device;
        context.tp = context.cp = context.ep = context.etp = alone_.get();
        context.dtype = Dtype::fp64;
    }

    /// Weights for these parameters with values from the maker.
    WeightTable weights_for(const std::vector<Parameter>& parameters) {
        WeightTable table;
        for (const Parameter& parameter : parameters) {
            const auto& s = parameter.shape;
            const Shape shape = s.size() == 1 ? Shape{s[0]} : s.size() == 2 ? Shape{s[0], s[1]} : Shape{s[0], s[1], s[2]};
            table.add(parameter.name, {maker.random(shape), maker.zeros(shape)});
        }
        return table;
    }

    runtime::CpuDevice device;
    Maker maker{device, Dtype::fp64};
    RankContext context;
    MicrobatchContext microbatch{.batch = 2, .sequence = 5, .first_sequence = 3, .dropout_seed = 7};

private:
    runtime::InProcessWorld world_{1};
    std::unique_ptr<Communicator> alone_;
};

/// One layer of a model alone, whose weights have no prefix.
inline LayerSite alone(const ModelSpec& model, const WeightTable& weights, EnumSet<RecomputeModule> recompute = {},
                       std::int64_t number = 0) {
    return layer_site(model, typed_layer(model, number), weights, "", number, recompute);
}

/// The half of class `Half` of such a layer.
template <class Half>
Half first_half(const LayerSite& site) {
    return std::visit([&](const auto& kind) { return std::get<Half>(half_of<TokenMixer>(kind, site)); }, *site.layer.mixer);
}
template <class Half>
Half second_half(const LayerSite& site) {
    return std::visit([&](const auto& kind) { return std::get<Half>(half_of<FeedForward>(kind, site)); }, *site.layer.feed_forward);
}

/// What a layer test checks: a loss, its gradient by the layer's backward (which also fills the weights' gradients), and the
/// weights that the loss depends on.
struct LayerCheck {
    std::function<double()> loss;
    std::function<Tensor()> backward;  ///< returns the gradient of x; undefined where there is none
    Tensor x;
};

inline void expect_layer_gradients(const LayerCheck& check, const std::vector<Parameter>& parameters, const WeightTable& weights) {
    (void)check.loss();
    const Tensor dx = check.backward();
    if (dx.defined()) expect_gradient("x", check.x, dx, check.loss);
    for (const Parameter& parameter : parameters) {
        const Weight& weight = weights.at(parameter.name);
        expect_gradient(parameter.name, weight.value, weight.gradient, check.loss);
    }
}

}  // namespace mgplan::model
