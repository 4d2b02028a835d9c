// One mixture layer on one rank: gradients by finite differences, capacity, shared experts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/layers/expert_bias.hpp"
#include "model/layers/initialization.hpp"
#include "model/layers/moe.hpp"
#include "model/layers/routing_log.hpp"
#include "model/ops/elementwise.hpp"
#include "model/optimizer/chunk_buffers.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::model::moe_test {
namespace {

constexpr std::int64_t kRows = 10;
const std::string kPrefix = "decoder.layers.0.";

ModelSpec small_model(RouterScore score) {
    ModelSpec model = tests::llama_of("", {.layers = 1, .hidden = 6, .ffn = 4, .heads = 1, .head_dim = 6, .vocab = 8});
    model.moe = MoeSpec{.experts = 4, .top_k = 2, .expert_ffn = 3, .shared_ffn = 4, .score = score, .auxiliary_loss = 0.5};
    model.moe_layers = {true};
    return model;
}

Mixture mixture_of(const ModelSpec& model) {
    return std::get<Mixture>(*typed_layer(model, 0).feed_forward);
}

/// A layer with its buffers on a world of one.
struct OneLayer {
    explicit OneLayer(const ModelSpec& spec, EnumSet<RecomputeModule> recompute = {})
        : model(spec),
          parameters(layer_parameters(model, LayerKind::moe, 1, 1, 1, kPrefix)),
          buffers(device, parameters, Dtype::fp64, {.grad_dtype = Dtype::fp64}),
          layer(mixture_of(model), layer_site(model, typed_layer(model, 0), buffers.weights(), kPrefix, 0, recompute)),
          alone(world.view(0).join("alone", std::vector<std::int32_t>{0})) {
        // Wide enough that rows differ in their choice and none is near a tie.
        initialize_weights(model, parameters, buffers.weights(), {}, {.seed = 5, .deviation = 0.7});
        context.device = &device;
        context.tp = context.cp = context.ep = context.etp = context.tp_cp = alone.get();
        context.dtype = Dtype::fp64;
        context.routing_log = &log;
        context.auxiliary_loss = device.zeros({1}, Dtype::fp64, MemoryCategory::workspace, "sum of auxiliary losses");
        log.watch_margins();
        microbatch.batch = 1;
        microbatch.sequence = kRows;
        microbatch.d_auxiliary = 1.5;
        Maker maker(device, Dtype::fp64);
        x = maker.random({kRows, model.hidden});
        dy = maker.random({kRows, model.hidden});
    }

    /// Σ y·dy and the auxiliary loss as it counts.
    double loss() {
        MoeSaved saved;
        const Tensor y = layer.forward(context, microbatch, x, saved);
        if (!saved.mixture || model.moe->auxiliary_loss == 0) return weigh(y, dy);
        const RouterSaved& router = saved.mixture->router;
        return weigh(y, dy) + microbatch.d_auxiliary * model.moe->auxiliary_loss *
                                  auxiliary_loss_of(router.routing.scores, model.moe->score, router.copies, kRows, model.moe->top_k, 1);
    }

    Tensor backward() {
        buffers.zero_gradients();
        fill(context.auxiliary_loss, 0);
        MoeSaved saved;
        (void)layer.forward(context, microbatch, x, saved);
        return layer.backward(context, microbatch, dy, saved);
    }

    [[nodiscard]] double reported() const { return read(context.auxiliary_loss).front(); }

    void check_gradients() {
        const Tensor dx = backward();
        expect_gradient("x", x, dx, [&] { return loss(); });
        for (const Parameter& parameter : parameters) {
            if (parameter.name.find("self_attention") != std::string::npos) continue;
            const Weight& weight = buffers.weights().at(parameter.name);
            expect_gradient(parameter.name, weight.value, weight.gradient, [&] { return loss(); });
        }
        EXPECT_GT(log.smallest_margin(), 1e-3) << "a step of the difference quotient must not change a choice";
    }

    runtime::CpuDevice device;
    ModelSpec model;
    std::vector<Parameter> parameters;
    ChunkBuffers buffers;
    Moe layer;
    runtime::InProcessWorld world{1};
    std::unique_ptr<Communicator> alone;
    RankContext context;
    MicrobatchContext microbatch;
    RoutingLog log;
    Tensor x, dy;
};

TEST(MoeLayer, HasTheGradientOfItsOutputsAndOfTheAuxiliaryLoss) {
    for (const auto score : {RouterScore::softmax, RouterScore::sigmoid}) {
        OneLayer one(small_model(score));
        one.check_gradients();
    }
}

TEST(MoeLayer, ScalesTheRoutedExpertsAloneAndHasTheGradient) {
    for (const auto score : {RouterScore::softmax, RouterScore::sigmoid}) {
        ModelSpec model = small_model(score);
        const auto routed = [&](double scaling, std::int64_t shared_ffn) {
            model.moe->routed_scaling = scaling;
            model.moe->shared_ffn = shared_ffn;
            OneLayer one(model);
            MoeSaved saved;
            // Without the residual stream, which the layer adds.
            std::vector<double> y = read(one.layer.forward(one.context, one.microbatch, one.x, saved));
            const std::vector<double> x = read(one.x);
            for (std::size_t i = 0; i < y.size(); ++i) y[i] -= x[i];
            return y;
        };
        const std::vector<double> plain = routed(1, 0), scaled = routed(2.5, 0);
        for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(scaled[i], 2.5 * plain[i], 1e-12);
        const std::vector<double> both = routed(1, 4), both_scaled = routed(2.5, 4);
        for (std::size_t i = 0; i < plain.size(); ++i)
            EXPECT_NEAR(both_scaled[i] - both[i], scaled[i] - plain[i], 1e-12) << "shared as before";
        model.moe->routed_scaling = 2.5;
        OneLayer one(model);
        one.check_gradients();
    }
}

TEST(MoeLayer, HasTheGradientOfTheGateOnSharedExperts) {
    ModelSpec model = small_model(RouterScore::softmax);
    model.moe->shared_gate = true;
    OneLayer one(model);
    one.check_gradients();
    const auto expected = read(one.backward());
    OneLayer again(model, {RecomputeModule::shared_experts});
    EXPECT_EQ(read(again.backward()), expected);
    EXPECT_EQ(read(again.buffers.weights().at(kPrefix + "mlp.shared_experts.gate_weight").gradient),
              read(one.buffers.weights().at(kPrefix + "mlp.shared_experts.gate_weight").gradient));
}

TEST(MoeLayer, HasTheGradientOfBiasesOfRouterAndExperts) {
    for (const bool gated : {true, false}) {
        ModelSpec model = small_model(RouterScore::softmax);
        model.mlp_bias = true;
        model.gated_mlp = gated;
        model.moe->router_bias = true;
        model.moe->shared_ffn = 0;
        OneLayer one(model);
        // Biases start at 0, where an error would not show.
        Maker maker(one.device, Dtype::fp64);
        for (const Parameter& parameter : one.parameters) {
            if (parameter.name.find(".bias") == std::string::npos) continue;
            const Tensor& value = one.buffers.weights().at(parameter.name).value;
            const auto values = read(maker.random(value.shape()));
            one.device.write(value, values.data());
        }
        one.check_gradients();
    }
}

TEST(MoeLayer, HasTheGradientBehindLimitedGroupsAndExpertBias) {
    ModelSpec model = small_model(RouterScore::sigmoid);
    model.moe->groups = 2;
    model.moe->group_top_k = 1;
    OneLayer one(model);
    one.check_gradients();
    const auto before = read(one.backward());
    ExpertBiases biases(one.device, {0}, 4, Dtype::fp64);
    const std::vector<double> values{5, 5, 0, 0};
    one.device.write(biases.of(0), values.data());
    one.context.expert_biases = &biases;
    const Tensor dx = one.backward();
    expect_gradient("x", one.x, dx, [&] { return one.loss(); });
    EXPECT_NE(read(dx), before) << "the bias sends every row to the first group";
    MoeSaved saved;
    (void)one.layer.forward(one.context, one.microbatch, one.x, saved);
    EXPECT_THAT(saved.mixture->plan.per_expert, testing::ElementsAre(kRows, kRows, 0, 0));
}

TEST(MoeLayer, HasTheGradientOfPlainActivationsWithoutSharedExperts) {
    ModelSpec model = small_model(RouterScore::softmax);
    model.gated_mlp = false;
    model.activation = Activation::gelu;
    model.normalization = Normalization::layer_norm;
    model.moe->shared_ffn = 0;
    model.moe->auxiliary_loss = 0;
    OneLayer one(model);
    one.check_gradients();
}

TEST(MoeLayer, HasTheGradientOfWhatCapacityLeaves) {
    for (const bool pads : {false, true}) {
        ModelSpec model = small_model(RouterScore::softmax);
        model.moe->capacity_factor = 0.6;
        model.moe->pad_to_capacity = pads;
        OneLayer one(model);
        MoeSaved saved;
        (void)one.layer.forward(one.context, one.microbatch, one.x, saved);
        const std::int64_t capacity = expert_capacity(mixture_of(model), kRows);
        EXPECT_EQ(capacity, 3);  // ceil(10 · 2 / 4 · 0.6)
        const auto kept = read(saved.mixture->router.kept);
        EXPECT_GT(std::count(kept.begin(), kept.end(), -1), 0) << "something is dropped";
        for (const auto rows : saved.mixture->plan.per_expert) {
            EXPECT_LE(rows, capacity);
            if (pads) {
                EXPECT_EQ(rows, capacity);
            }
        }
        one.check_gradients();
    }
}

TEST(MoeLayer, PaddingChangesNoValue) {
    ModelSpec model = small_model(RouterScore::sigmoid);
    model.moe->capacity_factor = 0.8;
    OneLayer dropping(model);
    model.moe->pad_to_capacity = true;
    OneLayer padding(model);
    expect_close(read(padding.backward()), read(dropping.backward()), 1e-14, "dx");
    for (const Parameter& parameter : dropping.parameters) {
        expect_close(read(padding.buffers.weights().at(parameter.name).gradient),
                     read(dropping.buffers.weights().at(parameter.name).gradient), 1e-13, parameter.name);
    }
}

TEST(MoeLayer, WithWideCapacityIsDropless) {
    ModelSpec model = small_model(RouterScore::softmax);
    OneLayer dropless(model);
    model.moe->capacity_factor = 1000;
    OneLayer roomy(model);
    EXPECT_EQ(expert_capacity(mixture_of(model), kRows), kRows);
    EXPECT_EQ(read(roomy.backward()), read(dropless.backward()));
}

TEST(MoeLayer, GivesTheSameGradientsUnderEachRecompute) {
    using enum RecomputeModule;
    const ModelSpec model = small_model(RouterScore::softmax);
    OneLayer plain(model);
    const auto expected = read(plain.backward());
    EXPECT_GT(plain.reported(), 0);
    for (const EnumSet<RecomputeModule> modules : {EnumSet{moe}, EnumSet{moe_act}, EnumSet{shared_experts}, EnumSet{layernorm},
                                                   EnumSet{moe, layernorm}, EnumSet{moe_act, shared_experts}}) {
        OneLayer again(model, modules);
        EXPECT_EQ(read(again.backward()), expected);
        EXPECT_EQ(again.reported(), plain.reported()) << "the auxiliary loss is reported once";
        for (const Parameter& parameter : plain.parameters)
            EXPECT_EQ(read(again.buffers.weights().at(parameter.name).gradient), read(plain.buffers.weights().at(parameter.name).gradient));
    }
}

TEST(MoeLayer, KeepsLessUnderRecompute) {
    using enum RecomputeModule;
    const auto kept = [](EnumSet<RecomputeModule> modules) {
        OneLayer one(small_model(RouterScore::softmax), modules);
        MoeSaved saved;
        const Tensor y = one.layer.forward(one.context, one.microbatch, one.x, saved);
        return one.device.memory().current[static_cast<std::size_t>(MemoryCategory::activations)];
    };
    const std::int64_t all = kept({});
    // Rows · values: 20 copies of 3 after the activation; 10 rows of 8 + 4 in the shared expert; the norm's 10 rows of 6.
    EXPECT_EQ(all - kept({moe_act}), 20 * 3 * 8);
    EXPECT_EQ(all - kept({shared_experts}), 10 * 12 * 8);
    EXPECT_EQ(all - kept({layernorm}), 10 * 6 * 8);
    EXPECT_LT(kept({moe}), kept({moe_act, shared_experts}));
}

TEST(MoeLayer, SharedExpertsServeEveryRow) {
    ModelSpec model = small_model(RouterScore::softmax);
    OneLayer with(model);
    model.moe->shared_ffn = 0;
    OneLayer without(model);
    MoeSaved saved, other;
    const auto y = read(with.layer.forward(with.context, with.microbatch, with.x, saved));
    const auto plain = read(without.layer.forward(without.context, without.microbatch, without.x, other));
    for (std::int64_t row = 0; row < kRows; ++row) {
        double difference = 0;
        for (std::int64_t i = 0; i < model.hidden; ++i)
            difference +=
                std::abs(y[static_cast<std::size_t>(row * model.hidden + i)] - plain[static_cast<std::size_t>(row * model.hidden + i)]);
        EXPECT_GT(difference, 1e-6) << "row " << row;
    }
}

}  // namespace
}  // namespace mgplan::model::moe_test
