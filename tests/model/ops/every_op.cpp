#include "tests/model/ops/every_op.hpp"

#include <cstdint>
#include <tuple>

#include "model/ops/activation.hpp"
#include "model/ops/attention.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/causal_conv.hpp"
#include "model/ops/checks.hpp"
#include "model/ops/clip_factor.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/delta_rule.hpp"
#include "model/ops/dropout.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/embedding.hpp"
#include "model/ops/fp8.hpp"
#include "model/ops/fp8_grouped.hpp"
#include "model/ops/fp8_history.hpp"
#include "model/ops/gate.hpp"
#include "model/ops/gated_norm.hpp"
#include "model/ops/grouped_matmul.hpp"
#include "model/ops/latent_keys.hpp"
#include "model/ops/linear.hpp"
#include "model/ops/matmul.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/normal_values.hpp"
#include "model/ops/rotary.hpp"
#include "model/ops/router.hpp"
#include "model/ops/short_conv.hpp"
#include "model/ops/sinks.hpp"
#include "model/ops/state_space.hpp"
#include "model/ops/xielu.hpp"
#include "tests/model/ops/single_steps.hpp"

namespace mgplan::model {
namespace {

using Results = std::vector<std::pair<std::string, Tensor>>;

/// A layer whose rows lie at multiples of 16 bytes in bf16: biases of GPUs by products there, else by passes.
void run_linear_ops(Maker& maker, Results& results) {
    const Tensor x = maker.random({5, 16}), weight = maker.random({24, 16}), bias = maker.random({24}), dy = maker.random({5, 24});
    results.emplace_back("linear", linear(x, weight, bias, "linear"));
    const Tensor d_weight = maker.zeros({24, 16}, statistics_dtype(maker.dtype())), d_bias = maker.zeros({24}, d_weight.dtype());
    for (const bool accumulate : {false, true}) {
        if (sums_columns_in_product(dy, x, d_weight)) {
            linear_gradients(dy, x, d_weight, accumulate, d_bias);
            continue;
        }
        const auto multiply = accumulate ? matmul_accumulate : matmul_write;
        multiply(dy, x, {.a = true}, d_weight, ProductAlgorithm::first, {});
        bias_gradient(dy, d_bias);
    }
    results.emplace_back("linear_gradients, weight", d_weight);
    results.emplace_back("linear_gradients, bias", d_bias);
}

/// Convolutions, gated norms, scans and delta rules, in several chunks.
void run_recurrent_ops(Maker& maker, Results& results) {
    const auto keep = [&](std::string name, const Tensor& tensor) { results.emplace_back(std::move(name), tensor); };
    const Dtype kept = statistics_dtype(maker.dtype());
    const Tensor projected = maker.random({14, 9}), taps = maker.random({4, 1, 3}), bias = maker.random({4});
    keep("causal_conv", causal_conv(projected, {3, 4}, taps, bias, 2));
    const Tensor d_projected = maker.zeros({14, 9}), d_taps = maker.zeros({4, 1, 3}, kept), d_bias = maker.zeros({4});
    causal_conv_backward(maker.random({14, 4}), projected, {3, 4}, taps, bias, 2, d_projected, d_taps, d_bias);
    keep("causal_conv_backward", d_projected);
    keep("causal_conv_backward, weight", d_taps);
    keep("causal_conv_backward, bias", d_bias);

    keep("short_conv", short_conv(projected, maker.random({3, 1, 4}), 2));
    const Tensor d_short = maker.zeros({3, 1, 4}, kept);
    keep("short_conv_backward", short_conv_backward(maker.random({14, 3}), projected, maker.random({3, 1, 4}), 2, d_short));
    keep("short_conv_backward, weight", d_short);

    for (const bool gate_first : {true, false}) {
        for (const std::int64_t weights : {6, 3, 0}) {
            const GatedNormOptions options{3, gate_first, 1e-3};
            const Tensor weight = weights > 0 ? maker.random({weights}) : Tensor(), x = maker.random({14, 6});
            Tensor statistics;
            keep("gated_norm", gated_norm(x, projected, {2, 6}, weight, options, statistics));
            const Tensor d_gates = maker.zeros({14, 9}), d_weight = weights > 0 ? maker.zeros({weights}, kept) : Tensor();
            keep("gated_norm_backward",
                 gated_norm_backward(maker.random({14, 6}), x, projected, {2, 6}, weight, statistics, options, d_gates, d_weight));
            keep("gated_norm_backward, gate", d_gates);
            if (weights > 0) keep("gated_norm_backward, weight", d_weight);
        }
    }

    const StateSpaceSizes sizes{.places = 7, .batch = 2, .heads = 4, .head_dim = 3, .groups = 2, .state = 5, .chunk = 3, .step_high = 1.2};
    const StateSpaceInputs scan{maker.random({14, sizes.width()}), projected, 3, maker.random({4}), maker.random({4}), maker.random({4})};
    keep("state_space_scan", state_space_scan(scan, sizes));
    const Tensor d_steps = maker.zeros({14, 9});
    const StateSpaceGradients gradients{maker.zeros({4}, kept), maker.zeros({4}), maker.zeros({4}, kept)};
    keep("state_space_scan_backward", state_space_scan_backward(maker.random({14, sizes.inner()}), scan, sizes, d_steps, gradients));
    keep("state_space_scan_backward, steps", d_steps);
    keep("state_space_scan_backward, dt_bias", gradients.step_bias);
    keep("state_space_scan_backward, A_log", gradients.log_decay);
    keep("state_space_scan_backward, D", gradients.skip);

    const DeltaRuleSizes rule_sizes{.places = 7, .batch = 2, .key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 5, .chunk = 3};
    const DeltaRuleInputs rule{maker.random({14, rule_sizes.width()}), projected, 5, 1, maker.random({4}), maker.random({4})};
    keep("delta_rule", delta_rule(rule, rule_sizes));
    const Tensor d_gates = maker.zeros({14, 9}), d_step_bias = maker.zeros({4}, kept), d_log_decay = maker.zeros({4}, kept);
    keep("delta_rule_backward",
         delta_rule_backward(maker.random({14, rule_sizes.values()}), rule, rule_sizes, d_gates, d_step_bias, d_log_decay));
    keep("delta_rule_backward, gates", d_gates);
    keep("delta_rule_backward, dt_bias", d_step_bias);
    keep("delta_rule_backward, A_log", d_log_decay);
}

/// What Kimi delta attention, lightning attention and Falcon-H1 have beside these.
void run_channel_ops(Maker& maker, Results& results) {
    const auto keep = [&](std::string name, const Tensor& tensor) { results.emplace_back(std::move(name), tensor); };
    const Dtype kept = statistics_dtype(maker.dtype());
    const Tensor projected = maker.random({14, 9});
    const DeltaRuleSizes channel_sizes{
        .places = 7, .batch = 2, .key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 5, .chunk = 3, .channel_decays = true};
    const DeltaRuleInputs channels{
        maker.random({14, channel_sizes.width()}), projected, 5, 2, maker.random({12}), maker.random({4}), maker.random({14, 15})};
    keep("delta_rule by channels", delta_rule(channels, channel_sizes));
    const Tensor d_betas = maker.zeros({14, 9}), d_decays = maker.zeros({14, 15}), d_biases = maker.zeros({12}, kept),
                 d_rates = maker.zeros({4});
    keep("delta_rule_backward by channels",
         delta_rule_backward(maker.random({14, channel_sizes.values()}), channels, channel_sizes, d_betas, d_biases, d_rates, d_decays));
    keep("delta_rule_backward by channels, strengths", d_betas);
    keep("delta_rule_backward by channels, decays", d_decays);
    keep("delta_rule_backward by channels, dt_bias", d_biases);
    keep("delta_rule_backward by channels, A_log", d_rates);

    const GatedNormOptions options{3, false, 1e-3, true};
    const Tensor weight = maker.random({3}), x = maker.random({14, 6}), d_gates = maker.zeros({14, 9}), d_weight = maker.zeros({3}, kept);
    Tensor statistics;
    keep("gated_norm by sigmoid", gated_norm(x, projected, {2, 6}, weight, options, statistics));
    keep("gated_norm_backward by sigmoid",
         gated_norm_backward(maker.random({14, 6}), x, projected, {2, 6}, weight, statistics, options, d_gates, d_weight));
    keep("gated_norm_backward by sigmoid, gate", d_gates);
    keep("gated_norm_backward by sigmoid, weight", d_weight);

    const StateSpaceSizes lightning{.places = 7,
                                    .batch = 2,
                                    .heads = 2,
                                    .head_dim = 3,
                                    .groups = 2,
                                    .state = 3,
                                    .chunk = 3,
                                    .fixed = {.factor = 0.7, .slope = 0.4, .first_head = 2}};
    const Tensor mixed = maker.random({14, lightning.width()});
    keep("state_space_scan with fixed decays", state_space_scan({.mixed = mixed}, lightning));
    keep("state_space_scan_backward with fixed decays",
         state_space_scan_backward(maker.random({14, lightning.inner()}), {.mixed = mixed}, lightning, {}, {}));

    const Tensor part_scaled = maker.random({13, 7});
    scale_columns(part_scaled, 2, 3, 0.75);
    keep("scale_columns", part_scaled);
}

/// A delta rule whose strengths pass 1: with inverses of two parts on a GPU, in bf16.
void run_strong_rule(Maker& maker, Results& results) {
    const auto keep = [&](std::string name, const Tensor& tensor) { results.emplace_back(std::move(name), tensor); };
    const Dtype kept = statistics_dtype(maker.dtype());
    const DeltaRuleSizes sizes{
        .places = 7, .batch = 2, .key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 5, .chunk = 3, .strength = 2};
    const Tensor projected = maker.random({14, 9}), d_projected = maker.zeros({14, 9});
    const DeltaRuleInputs rule{maker.random({14, sizes.width()}), projected, 5, 1, maker.random({4}), maker.random({4})};
    keep("delta_rule of strong steps", delta_rule(rule, sizes));
    const Tensor dy = maker.random({14, sizes.values()}), d_step_bias = maker.zeros({4}, kept), d_log_decay = maker.zeros({4}, kept);
    keep("delta_rule_backward of strong steps", delta_rule_backward(dy, rule, sizes, d_projected, d_step_bias, d_log_decay));
    keep("delta_rule_backward of strong steps, gates", d_projected);
}

/// A norm without a weight, clipped values (OLMo 1), xIELU (Apertus).
void run_olmo_and_apertus_ops(Maker& maker, Results& results) {
    const auto keep = [&](std::string name, const Tensor& tensor) { results.emplace_back(std::move(name), tensor); };
    const Dtype kept = statistics_dtype(maker.dtype());
    const Tensor x = maker.random({13, 7}), dy = maker.random({13, 7});
    for (const auto kind : {Normalization::layer_norm, Normalization::rms_norm}) {
        NormStatistics statistics;
        keep("norm without a weight", norm(x, {}, {}, kind, 1e-5, statistics));
        keep("norm_backward without a weight", norm_backward(dy, x, {}, statistics, kind, {}, {}));
        keep("norm_backward without a weight, and another gradient", norm_backward(dy, x, {}, statistics, kind, {}, {}, x));
    }
    const Tensor clipped = maker.random({13, 7}), gradient = maker.random({13, 7});
    clip(clipped, 0.375);
    keep("clip", clipped);
    clip_gradient(gradient, clipped, 0.375);
    keep("clip_gradient", gradient);
    const Tensor positive = maker.random({1}), negative = maker.random({1}), d_positive = maker.zeros({1}, kept),
                 d_negative = maker.zeros({1}, kept);
    keep("xielu", xielu(x, positive, negative));
    keep("xielu_backward", xielu_backward(dy, x, positive, negative, d_positive, d_negative));
    keep("xielu_backward, positive", d_positive);
    keep("xielu_backward, negative", d_negative);
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> run_every_op(Maker& maker) {
    std::vector<std::pair<std::string, Tensor>> results;
    const auto keep = [&](std::string name, const Tensor& tensor) { results.emplace_back(std::move(name), tensor); };
    const Dtype kept = statistics_dtype(maker.dtype());

    const Tensor a = maker.random({13, 7}), b = maker.random({7, 11});
    keep("matmul", matmul(a, b, {}, "product"));
    const Tensor sums = maker.zeros({7, 7}, kept);
    matmul_accumulate(a, a, {true, false}, sums);
    keep("matmul_accumulate", sums);
    const std::vector<std::int64_t> groups{4, 0, 9};
    const std::vector<Tensor> per_group{maker.random({7, 11}), maker.random({7, 11}), maker.random({7, 11})};
    keep("grouped_matmul", grouped_matmul(a, per_group, groups, false, "products"));
    const std::vector<Tensor> turned{maker.random({11, 7}), maker.random({11, 7}), maker.random({11, 7})};
    keep("grouped_matmul, transposed", grouped_matmul(a, turned, groups, true, "products"));
    const std::vector<Tensor> group_sums{maker.zeros({7, 7}, kept), maker.zeros({7, 7}, kept), maker.zeros({7, 7}, kept)};
    grouped_matmul_accumulate(a, a, groups, group_sums);
    for (const Tensor& sum : group_sums) keep("grouped_matmul_accumulate", sum);

    for (const auto kind : {Normalization::layer_norm, Normalization::rms_norm}) {
        const bool centred = kind == Normalization::layer_norm;
        const Tensor weight = maker.random({7}), bias = centred ? maker.random({7}) : Tensor(), dy = maker.random({13, 7});
        NormStatistics statistics;
        keep("norm", norm(a, weight, bias, kind, 1e-5, statistics));
        const Tensor weight_gradient = maker.zeros({7}, kept), bias_gradient = centred ? maker.zeros({7}) : Tensor();
        keep("norm_backward", norm_backward(dy, a, weight, statistics, kind, weight_gradient, bias_gradient));
        keep("norm_backward and another gradient", norm_backward(dy, a, weight, statistics, kind, weight_gradient, bias_gradient, dy));
        keep("norm weight gradient", weight_gradient);
        if (centred) keep("norm bias gradient", bias_gradient);
    }

    for (const auto kind : {Activation::gelu, Activation::silu, Activation::relu, Activation::squared_relu, Activation::gelu_exact,
                            Activation::clamped_swish}) {
        const Tensor x = maker.random({5, 6}), dy = maker.random({5, 6}), half = maker.random({5, 3}), weights = maker.random({5}, kept);
        keep("activation", activation(x, kind, false));
        keep("activation_backward", activation_backward(dy, x, kind, false));
        keep("weighted_activation", weighted_activation(x, weights, kind, true));
        Tensor d_weights;
        keep("weighted_activation_backward", weighted_activation_backward(half, x, weights, kind, true, d_weights));
        keep("weighted_activation_backward, weights", d_weights);
    }

    const Tensor gate_logits = maker.random({5, 1}), ungated = maker.random({5, 6});
    Tensor d_gate_logits;
    keep("gate_rows", gate_rows(ungated, gate_logits));
    keep("gate_rows_backward", gate_rows_backward(maker.random({5, 6}), ungated, gate_logits, d_gate_logits));
    keep("gate_rows_backward, logits", d_gate_logits);

    const Tensor biased = maker.random({5, 3}), bias = maker.random({3}), bias_sums = maker.zeros({3});
    add_bias(biased, bias);
    keep("add_bias", biased);
    bias_gradient(biased, bias_sums);
    keep("bias_gradient", bias_sums);
    const Tensor bias_weights = maker.random({5}, kept), d_bias_weights = maker.zeros({5}, kept), weighted_sums = maker.zeros({3});
    add_weighted_bias(biased, bias, bias_weights);
    keep("add_weighted_bias", biased);
    weighted_bias_gradient(biased, bias, bias_weights, weighted_sums, d_bias_weights);
    keep("weighted_bias_gradient", weighted_sums);
    keep("weighted_bias_gradient, weights", d_bias_weights);

    const Tensor scaled = maker.random({9}), other = maker.random({9}), wide = maker.zeros({9}, kept);
    add(other, scaled);
    scale(scaled, 0.75);
    copy(scaled, wide);
    keep("add, scale, copy", wide);
    const Tensor block = maker.random({4, 5});
    keep("columns", columns(block, 1, 4));
    set_columns(maker.random({4, 2}), block, 3);
    keep("set_columns", block);
    keep("swap_leading", swap_leading(maker.random({3, 2, 5})));

    const Tensor ids = maker.ids({3, 9, 4, 3, 2}, {5}), table = maker.random({3, 4}), table_gradient = maker.zeros({3, 4}, kept);
    keep("embedding", embedding(ids, table, 3));
    embedding_backward(maker.random({5, 4}), ids, 3, table_gradient);
    keep("embedding_backward", table_gradient);

    const Tensor logits = maker.random({5, 9}), targets = maker.ids({4, 10, 9, 5, 6}, {5});
    const VocabularyShard shard{4, 7};
    const Tensor maximum = row_maximum(logits, shard);
    const SoftmaxSums softmax = softmax_sums(logits, targets, maximum, shard);
    keep("row_maximum", maximum);
    keep("softmax_sums", softmax.exponentials);
    keep("token_losses", token_losses(softmax, targets));
    const Tensor loss_sums = maker.zeros({2}, Dtype::fp64);
    add_sum_of_losses(token_losses(softmax, targets), loss_sums, 1);
    keep("sum_of_losses", loss_sums);
    keep("token_losses, without targets", token_losses(softmax, maker.ids({4, -1, 9, -5, 6}, {5})));
    const Tensor untargeted = maker.random({5, 9});
    cross_entropy_backward(untargeted, maker.ids({4, -1, 9, -5, 6}, {5}), maximum, softmax.exponentials, shard, 0.2);
    keep("cross_entropy_backward, without targets", untargeted);
    cross_entropy_backward(logits, targets, maximum, softmax.exponentials, shard, 0.2);
    keep("cross_entropy_backward", logits);

    const Positions positions = zigzag_positions(140, 3, 2, 1);
    const Tensor q = maker.random({210, 4, 5}), k = maker.random({210, 2, 5}), v = maker.random({210, 2, 3}),
                 d_output = maker.random({210, 4, 3});
    AttentionResult attended = attention(q, k, v, positions, positions, 0.5);
    const AttentionGradients gradients = attention_backward(d_output, q, k, v, attended, positions, positions, 0.5);
    keep("attention_backward, q", gradients.q);
    keep("attention_backward, k", gradients.k);
    keep("attention_backward, v", gradients.v);
    merge_attention(attended, attention(q, k, v, positions, zigzag_positions(140, 3, 2, 0), 0.5));
    keep("attention", attended.output);
    keep("attention, log-sum-exp", attended.log_sum_exp);
    const AttentionResult near = attention(q, k, v, positions, positions, 0.5, 33);
    const AttentionGradients near_gradients = attention_backward(d_output, q, k, v, near, positions, positions, 0.5, 33);
    keep("attention within a window", near.output);
    keep("attention_backward within a window, q", near_gradients.q);
    keep("attention_backward within a window, k", near_gradients.k);
    keep("attention_backward within a window, v", near_gradients.v);
    const AttentionResult capped = attention(q, k, v, positions, positions, 0.5, 0, 0.3);
    const AttentionGradients capped_gradients = attention_backward(d_output, q, k, v, capped, positions, positions, 0.5, 0, 0.3);
    keep("attention with a soft cap", capped.output);
    keep("attention_backward with a soft cap, q", capped_gradients.q);
    keep("attention_backward with a soft cap, k", capped_gradients.k);
    keep("attention_backward with a soft cap, v", capped_gradients.v);
    // Two sequences, two groups of three query heads.
    const Positions whole = zigzag_positions(70, 2, 1, 0);
    const PackedHeads heads{6, 2, 6};
    const Tensor packed = maker.random({140, heads.width()});
    rotary_in_place(packed, heads, whole, 4, {.base = 10000}, false);
    keep("rotary_in_place", packed);
    const AttentionResult inside = packed_attention(packed, heads, whole, 0.5);
    keep("packed_attention", inside.output);
    keep("packed_attention, log-sum-exp", inside.log_sum_exp);
    keep("packed_attention_backward", packed_attention_backward(maker.random({140, 6, 6}), packed, heads, inside, whole, 0.5));
    const Tensor large = maker.random({5, 6});
    soft_cap(large, 0.7);
    keep("soft_cap", large);
    const Tensor sinks = maker.random({4}), d_sinks = maker.zeros({4}, kept);
    add_sinks(near, sinks);
    keep("add_sinks", near.output);
    keep("add_sinks, log-sum-exp", near.log_sum_exp);
    sinks_gradient(d_output, near, sinks, d_sinks);
    keep("sinks_gradient", d_sinks);
    keep("rotary, scaled",
         rotary(q, positions, 4, {.factor = 3, .offset = 1.5, .by_index = -0.5, .by_frequency = -0.1, .magnitude = 1.3}, true));
    keep("rotary", rotary(q, positions, 4, {.base = 10000}, false));
    const LatentKeys latent = join_latent_keys(maker.random({6, 3, 5}), maker.random({6, 4}), 2);
    keep("join_latent_keys, k", latent.k);
    keep("join_latent_keys, v", latent.v);
    const LatentKeyGradients latent_gradients = split_latent_keys(maker.random({6, 3, 6}), maker.random({6, 3, 3}), 2);
    keep("split_latent_keys, projected", latent_gradients.projected);
    keep("split_latent_keys, shared", latent_gradients.shared);

    DropoutPlace place{.probability = 0.25, .seed = 1, .stream = 2, .positions = positions, .first_row = 50, .first_sequence = 6};
    const Tensor hidden = maker.random({100, 5}), residual = maker.random({100, 5});
    keep("dropout_add", dropout_add(hidden, residual, place));
    keep("dropout_backward", dropout_backward(hidden, place));
    place.probability = 0;
    keep("dropout_add, nothing drops", dropout_add(hidden, residual, place));

    const Tensor main = maker.random({9}, kept), exp_avg = maker.zeros({9}, kept), exp_avg_sq = maker.zeros({9}, kept);
    adam_step(main, exp_avg, exp_avg_sq, maker.random({9}), {.learning_rate = 0.01, .weight_decay = 0.1});
    keep("adam_step", main);
    keep("adam_step, second moments", exp_avg_sq);
    const Tensor drawn = maker.zeros({5, 7});
    fill_normal(drawn, {.key = 3, .first = 1000, .pitch = 20, .deviation = 0.5});
    keep("fill_normal", drawn);
    const Tensor sum = maker.zeros({1}, Dtype::fp64), outcome = maker.zeros({2}, Dtype::fp64);
    add_in_order(maker.random({9}, Dtype::fp64), sum);
    keep("add_in_order", sum);
    clip_factor(make(maker.device(), {1}, Dtype::fp64, {5}), Tensor(), sum, {.clip_norm = 0.5}, outcome);
    keep("clip_factor", outcome);
    for (const MomentumRule rule : {MomentumRule::sgd, MomentumRule::lion}) {
        const Tensor moved = maker.random({9}, kept), momentum = maker.random({9}, kept);
        momentum_step(moved, momentum, maker.random({9}), {.rule = rule, .learning_rate = 0.01, .weight_decay = 0.1});
        keep("momentum_step", moved);
        keep("momentum_step, momentum", momentum);
    }

    for (const auto score : {RouterScore::softmax, RouterScore::sigmoid}) {
        // Eight logits a row that differ by more than bf16 can blur.
        std::vector<double> ramp;
        for (int i = 0; i < 24; ++i) ramp.push_back((i * 5 % 8) * 0.5 - 2);
        const Routing routing = route(make(maker.device(), {3, 8}, maker.dtype(), ramp), 3, score);
        keep("route, probabilities", routing.probabilities);
        keep("route, experts", routing.experts);
        keep("route, scores", routing.scores);
        keep("route_backward", route_backward(maker.random({3, 3}, kept), routing, score));
        const Routing plain = route(make(maker.device(), {3, 8}, maker.dtype(), ramp), 3, score, false, {.normalised = false});
        keep("route, not normalised", plain.probabilities);
        keep("route_backward, not normalised", route_backward(maker.random({3, 3}, kept), plain, score, false));
        const Tensor pushed = make(maker.device(), {8}, kept, {0, 4, 0, -4, 0, 4, 0, 0});
        const Routing limited =
            route(make(maker.device(), {3, 8}, maker.dtype(), ramp), 3, score, false, {.groups = 4, .group_top_k = 2, .bias = pushed});
        keep("route within groups, experts", limited.experts);
        keep("route within groups, probabilities", limited.probabilities);
    }
    for (const auto score : {RouterScore::softmax, RouterScore::sigmoid}) {
        const Routing routing = route(maker.random({4, 3}), 2, score, true), single = route(maker.random({4, 3}), 1, score, true);
        const Tensor d_router_logits = maker.zeros({4, 3}, kept);
        const Tensor chosen = maker.ids({5, 1, 2}, {3}), loss = maker.zeros({1}, Dtype::fp64);
        auxiliary_loss_backward(routing.scores, score, chosen, 4, 2, 2, 1, d_router_logits);
        keep("auxiliary_loss_backward", d_router_logits);
        auxiliary_loss(routing.scores, score, chosen, 4, 2, 2, loss);
        keep("auxiliary_loss", loss);
        keep("route, balanced", routing.probabilities);
        keep("route, one of three", single.probabilities);
        const Tensor within = keep_within_capacity(routing, 2);
        keep("keep_within_capacity", within);
        keep("sort_and_pad", sort_and_pad(within, 3, 2).source);
    }
    const Tensor choices = maker.ids({1, 0, 2, 1, 0, 2, 1, -1}, {4, 2}), counts = count_by_expert(choices, 3);
    keep("count_by_expert", counts);
    const Permutation permutation = sort_by_expert(choices, counts, 7);
    add_counts_by_expert(choices, counts);
    keep("add_counts_by_expert", counts);
    keep("sort_by_expert", permutation.source);
    const Tensor copies = permute_rows(maker.random({4, 5}), permutation, 2);
    keep("permute_rows", copies);
    keep("unpermute_rows", unpermute_rows(copies, permutation, 4, 2));
    const Tensor probabilities = permute_probabilities(maker.random({4, 2}, kept), permutation);
    keep("permute_probabilities", probabilities);
    keep("unpermute_probabilities", unpermute_probabilities(probabilities, permutation, 4, 2));
    keep("reorder_blocks", reorder_blocks(maker.random({6, 3}), {1, 3, 2}, {2, 0, 1}));
    run_olmo_and_apertus_ops(maker, results);
    run_recurrent_ops(maker, results);
    run_channel_ops(maker, results);
    run_linear_ops(maker, results);
    run_strong_rule(maker, results);
    return results;
}

Results run_fp8_ops(Maker& maker) {
    Results results;
    Device& device = maker.device();
    const auto cast = [&](const Tensor& x, Dtype dtype) {
        Fp8Tensor made{device.empty(x.shape(), dtype, MemoryCategory::activations, "codes"), maker.zeros({kFp8ScaleElements}, Dtype::fp32)};
        find_largest(x, made.scale);
        quantise(x, made);
        results.emplace_back("scale of fp8", made.scale);
        return made;
    };
    const auto keep_codes = [&](const std::string& name, const Tensor& codes) {
        std::vector<std::uint8_t> bits(static_cast<std::size_t>(codes.elements()));
        device.read(codes, bits.data());
        results.emplace_back(name, make(device, codes.shape(), Dtype::int32, {bits.begin(), bits.end()}));
    };
    for (const Shape& shape : {Shape{13, 7}, Shape{68, 4}, Shape{1, 131}, Shape{130, 36}, Shape{144, 160}}) {
        for (const Dtype dtype : {Dtype::fp8, Dtype::e5m2}) {
            const Fp8Tensor x = cast(maker.random(shape), dtype);
            keep_codes("quantise", x.codes);
            keep_codes("transpose_codes", transpose_codes(x.codes));
            for (const Fp8Copies copies : {Fp8Copies::turned, Fp8Copies::both}) {
                const Tensor values = maker.random(shape), scale = maker.zeros({kFp8ScaleElements}, Dtype::fp32);
                const Fp8Tensor made = empty_codes(values, dtype, scale, copies, "codes");
                find_largest(values, scale);
                quantise(values, made);
                results.emplace_back("scale of turned fp8", scale);
                keep_codes("quantise, turned", made.turned);
                if (made.codes.defined()) keep_codes("quantise, beside turned", made.codes);
            }
        }
    }
    std::vector<RaisedLargest> raised;
    std::vector<Fp8Cast> casts;
    for (const std::int64_t elements : {9, 8200, 64}) {
        const Fp8Tensor into{device.empty({elements}, Dtype::fp8, MemoryCategory::parameters, "codes"),
                             maker.zeros({kFp8ScaleElements}, Dtype::fp32)};
        casts.push_back({maker.random({elements}), into});
        raised.push_back({casts.back().x, into.scale.slice(0, 1)});
    }
    const auto cast_all = [&] {
        quantise_all(casts);
        for (const Fp8Cast& each : casts) {
            results.emplace_back("scale of one of many arrays",
                                 device.zeros(each.into.scale.shape(), Dtype::fp32, MemoryCategory::activations, "scale"));
            copy(each.into.scale, results.back().second);
            keep_codes("quantise_all", each.into.codes);
        }
    };
    raise_all_largest(raised);
    cast_all();
    for (const Fp8Cast& each : casts) fill(each.into.scale, 5);
    find_all_largest(raised);
    cast_all();
    // Libraries write bf16 and fp32 alone.
    const Dtype out = maker.dtype() == Dtype::bf16 ? Dtype::bf16 : Dtype::fp32;
    for (const auto& [m, n, k] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{16, 32, 48}, {80, 16, 144}}) {
        const Fp8Tensor a = cast(maker.random({m, k}), Dtype::fp8), b = cast(maker.random({n, k}), Dtype::fp8),
                        dy = cast(maker.random({m, n}), Dtype::e5m2);
        results.emplace_back("fp8_matmul", fp8_matmul(a, b, out, "product"));
        results.emplace_back("fp8_matmul of a gradient", fp8_matmul(dy, {transpose_codes(b.codes), b.scale}, out, "product"));
        const Fp8Tensor dy_columns{transpose_codes(dy.codes), dy.scale}, a_columns{transpose_codes(a.codes), a.scale};
        const Tensor sum = maker.random({n, k}, Dtype::fp32), written = maker.random({k, n}, Dtype::fp32);
        fp8_matmul_accumulate(dy_columns, a_columns, sum);
        results.emplace_back("fp8_matmul_accumulate", sum);
        fp8_matmul_write(a_columns, dy_columns, written);
        results.emplace_back("fp8_matmul_write", written);
    }
    const std::vector<std::int64_t> rows{5, 0, 16, 9};
    const std::int64_t m = 30, n = 48, k = 32;
    const Fp8Tensor a = quantise_groups(maker.random({m, k}), Dtype::fp8, rows, "rows"),
                    dy = quantise_groups(maker.random({m, n}), Dtype::e5m2, rows, "gradients");
    keep_codes("quantise_groups", a.codes);
    keep_codes("quantise_groups of gradients", dy.codes);
    std::vector<Fp8Tensor> matrices;
    std::vector<Tensor> sums;
    for (std::size_t group = 0; group < rows.size(); ++group) {
        matrices.push_back(cast(maker.random({n, k}), Dtype::fp8));
        sums.push_back(maker.random({n, k}, Dtype::fp32));
    }
    results.emplace_back("fp8_grouped_matmul", fp8_grouped_matmul(a, matrices, rows, out, "product"));
    fp8_grouped_matmul_accumulate(dy, a, rows, sums);
    for (const Tensor& sum : sums) results.emplace_back("fp8_grouped_matmul_accumulate", sum);
    const Tensor now = maker.zeros({2}, Dtype::fp32), history = maker.zeros({2, kFp8HistoryLength + 1}, Dtype::fp32),
                 scales = maker.zeros({2, kFp8ScaleElements}, Dtype::fp32);
    for (const Shape& shape : {Shape{40, 40}, Shape{3, 7}, Shape{1, 300}}) {
        raise_largest(maker.random(shape), now.slice(0, 1));
        raise_largest(maker.random(shape), now.slice(0, 1));
        follow_largest(now, history, scales, 0.25);
        results.emplace_back("follow_largest", scales);
        results.emplace_back("follow_largest, history", history);
    }
    results.emplace_back("follow_largest, of the next step", now);
    const Tensor padded = device.empty({k, 48}, Dtype::fp8, MemoryCategory::activations, "columns with zeros behind");
    transpose_codes(a.codes, padded);
    keep_codes("transpose_codes with zeros behind", padded);
    return results;
}

}  // namespace mgplan::model
