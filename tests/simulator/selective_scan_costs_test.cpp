// What mixers cost that are known of shapes alone: Mamba-1 of Jamba, the recurrent block of RecurrentGemma.

#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/hugging_face.hpp"
#include "model/ops/selective_scan.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/parameters.hpp"
#include "planner/constraints.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/piece/piece_step.hpp"
#include "simulator/piece/piece_trace.hpp"
#include "simulator/price/op_price.hpp"
#include "simulator/price/recorded_flops.hpp"
#include "tests/simulator/dgx_workload.hpp"
#include "tests/simulator/traced_layer.hpp"

namespace mgplan::simulator::selective_scan_costs_test {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kHidden = 4096, kInner = 2 * kHidden, kState = 16, kRank = 256, kWidth = 14336;

ModelSpec read(const Json& json) {
    return formats::read_hugging_face(json, "test", "config.json").model;
}

/// AI21's Jamba v0.1 (config.json of its repository): 32 layers, attention in every eighth, experts in every second.
ModelSpec jamba() {
    return read({{"model_type", "jamba"},
                 {"vocab_size", 65536},
                 {"hidden_size", kHidden},
                 {"intermediate_size", kWidth},
                 {"num_hidden_layers", 32},
                 {"num_attention_heads", 32},
                 {"num_key_value_heads", 8},
                 {"num_experts", 16},
                 {"num_experts_per_tok", 2},
                 {"mamba_dt_rank", kRank},
                 {"tie_word_embeddings", false}});
}

/// google/recurrentgemma-2b (config.json).
ModelSpec recurrent_gemma() {
    return read({{"model_type", "recurrent_gemma"},
                 {"vocab_size", 256000},
                 {"hidden_size", 2560},
                 {"intermediate_size", 15360},
                 {"num_hidden_layers", 26},
                 {"num_attention_heads", 10},
                 {"num_key_value_heads", 1},
                 {"lru_width", 2560},
                 {"head_dim", 256},
                 {"conv1d_width", 4}});
}

/// Zyphra/Zamba2-2.7B (config.json), with as many groups of Mamba-2 as two ranks need.
ModelSpec zamba() {
    return read({{"model_type", "zamba2"},
                 {"vocab_size", 32000},
                 {"hidden_size", 2560},
                 {"num_hidden_layers", 54},
                 {"intermediate_size", 10240},
                 {"num_attention_heads", 32},
                 {"num_key_value_heads", 32},
                 {"mamba_ngroups", 2},
                 {"n_mamba_heads", 80},
                 {"num_mem_blocks", 2},
                 {"use_shared_attention_adapter", true}});
}

/// Gemma 4 with inputs of its layers, of which the last 18 take over keys, and one that gives keys and values by one matrix.
ModelSpec gemma4(bool biased = false) {
    return read({{"model_type", "gemma4_text"},
                 {"attention_bias", biased},
                 {"vocab_size", 262144},
                 {"hidden_size", 2560},
                 {"num_hidden_layers", 42},
                 {"intermediate_size", 10240},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 2},
                 {"head_dim", 256},
                 {"attention_k_eq_v", true},
                 {"num_kv_shared_layers", 18},
                 {"hidden_size_per_layer_input", 256}});
}

/// google/gemma-4-26B-A4B: every layer an MLP beside 128 experts of which 8 are chosen, keys that are values in layers that see all.
ModelSpec gemma4_experts() {
    return read({{"model_type", "gemma4_text"},
                 {"vocab_size", 262144},
                 {"hidden_size", 2816},
                 {"num_hidden_layers", 30},
                 {"intermediate_size", 2112},
                 {"num_attention_heads", 16},
                 {"num_key_value_heads", 8},
                 {"num_global_key_value_heads", 2},
                 {"head_dim", 256},
                 {"global_head_dim", 512},
                 {"sliding_window", 1024},
                 {"attention_k_eq_v", true},
                 {"enable_moe_block", true},
                 {"num_experts", 128},
                 {"top_k_experts", 8},
                 {"moe_intermediate_size", 704},
                 {"num_kv_shared_layers", 0},
                 {"hidden_size_per_layer_input", 0}});
}

TEST(SelectiveScan, TakesTheLongerOfItsBytesAndItsInstructions) {
    const ClusterSpec cluster = load_cluster("dgx-h100");
    const Calibration calibration = calibration_of(cluster);
    const KernelTimes times(cluster, calibration, Precision::bf16);
    const OpRates rates{&times, &times, &calibration};
    const double elements = 4096.0 * kInner * kState;
    const auto scan = [&](std::string_view name, double flops, double instructions) {
        return model::OpRecord{
            name, flops * elements, 1000, 1000, 1, {}, {}, {}, {.exponentials = elements, .instructions = instructions * elements}};
    };
    const model::OpRecord forward = scan("selective_scan", model::kSelectiveScanFlops, model::kSelectiveScanInstructions);
    const model::OpRecord backward =
        scan("selective_scan_backward", model::kSelectiveScanBackwardFlops, model::kSelectiveScanBackwardInstructions);
    // An H100 (SXM) has 132 multiprocessors of 1.83 GHz, of which each begins 16 exponentials a clock.
    const double exponentials = elements / 16 / (132 * 1.83e9);
    EXPECT_GT(op_seconds(forward, rates), exponentials);
    EXPECT_LT(op_seconds(forward, rates), 3 * exponentials);
    EXPECT_GT(op_seconds(backward, rates), 2 * op_seconds(forward, rates)) << "two scans and six gradients";
    const model::OpRecord moves{"selective_scan", 1e6, 1 << 30, 1 << 30, 1, {}, {}, {}, {.exponentials = 1e5, .instructions = 8e5}};
    EXPECT_EQ(op_seconds(moves, rates), times.memory_bound(double{1U << 31U}));
}

TEST(SelectiveScan, ItsArithmeticGrowsWithItsRows) {
    const auto scan = [](double rows) {
        PieceStep step;
        step.op = {"selective_scan", 9 * rows, 100 * static_cast<std::int64_t>(rows), 0};
        step.op.arithmetic = {.exponentials = rows, .instructions = 8 * rows};
        step.op.own = {10 * rows, 20 * rows, 30 * rows, 40 * rows, 50 * rows};
        return step;
    };
    PieceStep one = scan(1);
    ASSERT_TRUE(grow_step(one, scan(2), 5, 1));
    EXPECT_EQ(one.op.flops, 45);
    EXPECT_EQ(one.op.bytes_read, 500);
    EXPECT_EQ(one.op.arithmetic.exponentials, 5);
    EXPECT_EQ(one.op.arithmetic.instructions, 40);
    const model::OwnKernels& own = one.op.own;
    EXPECT_EQ(own.bytes, 50);
    EXPECT_EQ(own.product_flops, 100);
    EXPECT_EQ(own.exponentials, 150);
    EXPECT_EQ(own.instructions, 200);
    EXPECT_EQ(own.of_a_thread, 250);
}

TEST(SelectiveScan, ModelFlopsAreThoseOfItsProductsAndItsScan) {
    constexpr double kSequence = 4096;
    const double products = 2.0 * kHidden * (3 * kInner) + 2.0 * kInner * (kRank + 2 * kState) + 2.0 * kRank * kInner;
    const double mamba = products + model::kSelectiveScanFlops * kInner * kState;
    const double attention = 2.0 * kHidden * (2 * kHidden + 2 * 1024) + 2 * kSequence * kHidden;
    const double mlp = 2.0 * 3 * kHidden * kWidth, vocabulary = 2.0 * kHidden * 65536;
    const double token = 28 * mamba + 4 * attention + (16 + 16 * 2) * mlp + vocabulary;
    EXPECT_NEAR(model_flops(jamba(), {1, 4096}), 3 * token * kSequence, 1e-9 * token * kSequence);
}

TEST(SelectiveScan, ParametersAreThoseOfTheCountAndAreDividedOverTensorParallelRanks) {
    for (const ModelSpec& model : {jamba(), recurrent_gemma(), zamba(), gemma4(), gemma4(true), gemma4_experts()}) {
        std::int64_t all = 0, halves = 0;
        for (std::int64_t layer = 0; layer < model.layers; ++layer) {
            for (const Parameter& parameter : decoder_layer_parameters(model, layer, {}, "")) all += parameter.count();
            ParallelSizes two;
            two.world = two.tp = 2;
            for (const Parameter& parameter : decoder_layer_parameters(model, layer, two, ""))
                halves += (parameter.shard_axis && !parameter.expert ? 2 : 1) * parameter.count();
        }
        // Blocks that layers share are counted with the embedding.
        const std::int64_t words = model.padded_vocab(1) * model.hidden, table = model.vocab * model.hidden;
        const std::int64_t shared = embedding_parameter_count(model, 1).total() - words;
        EXPECT_EQ(all + shared + table * (model.tied_embeddings ? 1 : 2) + model.hidden, total_parameters(model));
        EXPECT_EQ(halves, all);
        // Norms are whole on every rank: two in each of two blocks, and that of the layers' inputs.
        const std::int64_t norms = model.type == "zamba2" ? 2 * 3 * model.hidden : model.type == "gemma4_text" && !model.moe ? 256 : 0;
        EXPECT_EQ(2 * (embedding_parameter_count(model, 2).total() - model.padded_vocab(2) / 2 * model.hidden), shared + norms);
    }
}

TEST(SharedBlocks, AreComputedByEachLayerThatPassesThem) {
    // For a token: Mamba-2 in all 54 layers, and in nine the block over 2 h, adapters of 128 values and the map.
    constexpr double h = 2560, s = 4096, inner = 2 * h, state = 64, ffn = 10240, rank = 128;
    const double mamba = 2 * h * (2 * inner + 2 * 2 * state + 80) + 7 * inner * state + 2 * inner * h;
    const double attention = 2 * 2 * h * 3 * 2 * h + 2 * 2 * h * h + 2 * s * 2 * h, mlp = 2 * 3 * h * ffn;
    const double own = 2 * h * h + 2 * rank * (h + 2 * ffn) + 3 * 2 * rank * 4 * h;
    const double token = 54 * mamba + 9 * (attention + mlp + own) + 2 * h * 32000;
    EXPECT_NEAR(model_flops(zamba(), {1, 4096}), 3 * token * s, 1e-9 * token * s);
}

TEST(GemmaAttention, ProductsAreThoseOfItsLayers) {
    // Every sixth of 42 layers sees all with heads of 512, the others a window with heads of 256; the last 18 have no keys of their own.
    constexpr double h = 2560, s = 4096, ffn = 10240, input = 256;
    const auto layer = [&](double dim, double matrices) {
        const double queries = 8 * dim, keys = matrices * 2 * dim;
        return 2 * h * (queries + keys) + 2 * queries * h + 2 * s * queries + 2 * 3 * h * ffn + 2 * 3 * h * input;
    };
    const double own = 20 * layer(256, 2) + 4 * layer(512, 1), taken = 15 * layer(256, 0) + 3 * layer(512, 0);
    const double token = own + taken + 2 * h * 262144;
    EXPECT_NEAR(model_flops(gemma4(), {1, 4096}), 3 * token * s, 1e-9 * token * s);
    EXPECT_GT(model_flops(gemma4(), {2, 4096}), model_flops(gemma4(), {1, 4096}));
    // modeling_gemma4.py: biases of queries, of the output, and of what a layer has of keys and values.
    const std::int64_t biases = 35 * 8 * 256 + 7 * 8 * 512 + 42 * 2560 + 20 * 2 * 2 * 256 + 4 * 2 * 512;
    EXPECT_EQ(total_parameters(gemma4(true)) - total_parameters(gemma4()), biases);
    EXPECT_EQ(model_flops(gemma4(true), {1, 4096}), model_flops(gemma4(), {1, 4096}));
}

TEST(GemmaExperts, SizesAndProductsAreThosePublished) {
    const ModelSpec model = gemma4_experts();
    // Its card: 25.2 B parameters, of which a token passes 3.8 B.
    EXPECT_NEAR(static_cast<double>(total_parameters(model)) / 1e9, 25.2, 0.05);
    EXPECT_NEAR(static_cast<double>(active_parameters(model)) / 1e9, 3.8, 0.05);
    // Windows and routers do not count, as in Megatron-LM's formula.
    constexpr double h = 2816, s = 4096;
    const double feed_forward = 2 * 3 * h * (2112 + 8 * 704);
    const double wide = 2 * h * (16 + 2) * 512 + 2 * 16 * 512 * h + 2 * s * 16 * 512;
    const double narrow = 2 * h * (16 + 2 * 8) * 256 + 2 * 16 * 256 * h + 2 * s * 16 * 256;
    const double token = 5 * wide + 25 * narrow + 30 * feed_forward + 2 * h * 262144;
    EXPECT_NEAR(model_flops(model, {1, 4096}), 3 * token * s, 1e-9 * token * s);
}

TEST(GemmaExperts, BranchesKeepWhatTheirNormsRead) {
    PieceSizes sizes;
    sizes.sequence = 4096;
    const auto kept = [&](const ModelSpec& model) {
        const PieceTrace trace = trace_mixture(model, sizes);
        const PieceRange& forward = trace.range(Piece::mixture, false);
        std::int64_t bytes = 0;
        for (const auto& tensor : trace.tensors)
            bytes += forward.contains(tensor.taken) && !forward.contains(tensor.returned) ? tensor.bytes : 0;
        return bytes;
    };
    ModelSpec one = gemma4_experts();
    one.kind_of_layer.assign(1, one.kind_of_layer.front());
    one.layers = 1;
    ModelSpec plain = one;
    plain.moe->branch_norms = false;
    ASSERT_TRUE(is_computed(plain));
    // What the router sees, what experts and shared experts give, and a statistic of each of four norms; what the experts see is copied.
    EXPECT_EQ(kept(one) - kept(plain), 4096 * (3 * 2816 * 2 + 4 * 4));
}

TEST(GemmaAttention, LayersThatTakeOverKeysKeepNone) {
    PieceSizes sizes;
    sizes.sequence = 4096;
    const auto kept_by_first = [&](const ModelSpec& model) {
        const PieceTrace trace = trace_dense_pieces(model, sizes);
        const PieceRange& forward = trace.range(Piece::recurrent, false);
        std::int64_t kept = 0;
        for (const auto& tensor : trace.tensors)
            kept += forward.contains(tensor.taken) && !forward.contains(tensor.returned) ? tensor.bytes : 0;
        return kept;
    };
    ModelSpec own = gemma4(), taken = own;
    own.kind_of_layer.assign(1, own.kind_of_layer.front());
    taken.kind_of_layer.assign(1, taken.kind_of_layer[40]);
    own.layers = taken.layers = 1;
    // Keys and values of two heads of 256 in front of their norms and behind, and a statistic of each head.
    EXPECT_EQ(kept_by_first(own) - kept_by_first(taken), 4096 * (4 * 2 * 256 * 2 + 2 * 2 * 4));
}

TEST(SelectiveScan, KeepsWhatItsKernelsBackwardReads) {
    for (const std::int64_t sequence : {std::int64_t{2048}, std::int64_t{4096}}) {
        PieceSizes sizes;
        sizes.sequence = sequence;
        const PieceTrace trace = trace_dense_pieces(jamba(), sizes);
        const PieceRange& forward = trace.range(Piece::recurrent, false);
        std::int64_t kept = 0, states = 0;
        for (const auto& tensor : trace.tensors) {
            if (!forward.contains(tensor.taken) || forward.contains(tensor.returned)) continue;
            if (tensor.name == "scan states") states = tensor.bytes;
            kept += tensor.bytes;
        }
        EXPECT_EQ(states, kInner * (sequence / 2048) * 2 * kState * 4);
        // Input, normed input and the layer's output of the stream; projection, convolution, steps, scan and what its gate gives; both
        // sides of three norms.
        const std::int64_t wide = 2 * sequence * (6 * kInner + 2 * (kRank + 2 * kState)), narrow = 2 * sequence * 2 * kHidden;
        const std::int64_t statistics = 4 * 4 * sequence;
        EXPECT_EQ(kept, wide + narrow + states + statistics) << sequence;
    }
}

TEST(SelectiveScan, EveryHalfTakesTimeAndTensorParallelRanksAddUpSteps) {
    for (const ModelSpec& model : {jamba(), recurrent_gemma(), zamba(), gemma4(), gemma4_experts()}) {
        ASSERT_TRUE(is_computed(model));
        ASSERT_FALSE(layers_known_of_shapes(model).empty()) << "training refuses it by name";
        for (const Engine engine : {Engine::mgplan, Engine::megatron}) {
            const Workload work = dgx_workload(model);
            CostModel costs(work);
            LayoutRequest request;
            request.engine = engine;
            const Layout one = planner::make_layout(request, work);
            request.tp = 2;
            request.sequence_parallel = true;
            const Layout two = planner::make_layout(request, work);
            const LayerCosts whole = costs.costs(one), half = costs.costs(two);
            for (std::size_t kind = 0; kind < whole.layers.size(); ++kind) {
                EXPECT_GT(whole.layers[kind].cost.forward, half.layers[kind].cost.forward);
                EXPECT_GT(whole.layers[kind].cost.backward, whole.layers[kind].cost.forward);
            }
            EXPECT_EQ(costs.peaks(two, std::numeric_limits<std::int64_t>::max()).even, costs.memory(two).worst.peak_bytes());
        }
    }
}

}  // namespace
}  // namespace mgplan::simulator::selective_scan_costs_test
