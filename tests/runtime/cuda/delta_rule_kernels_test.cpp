// Delta rules by chunks as a GPU runs them, products and kernels in between, against the CPU's walk place by place: chunks of all lengths,
// key heads that serve one value head or several, a decay for each head or each channel, and more chunks than are worked on at once.

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "model/ops/delta_rule.hpp"
#include "model/ops/scratch.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"
#include "tests/runtime/cuda/far_device.hpp"

namespace mgplan::runtime::cuda::delta_rule_kernels_test {
namespace {

using namespace model;

/// All places have the first one's keys.
void set_like_keys(std::vector<double>& mixed, const DeltaRuleSizes& sizes) {
    const auto keys = mixed.begin() + sizes.keys();
    for (std::int64_t row = 1; row < sizes.rows(); ++row) std::copy_n(keys, sizes.keys(), keys + row * sizes.width());
}

/// y, and the gradients of its inputs, of its gates, of decays that have a tensor of their own, of dt_bias and A_log. `decay` is added to
/// A_log. Gradients of parameters begin at 0. With `like` all keys are one and all raw strengths, and decays among the gates, that number.
std::vector<std::vector<double>> run_rule(Device& device, Dtype dtype, const DeltaRuleSizes& sizes, double decay = 0,
                                          std::optional<double> like = {}) {
    Maker maker(device, dtype);
    const std::int64_t gates = 2 * sizes.value_heads + 3;
    std::vector<double> vectors = maker.numbers(sizes.rows() * sizes.width());
    if (like) set_like_keys(vectors, sizes);
    const Tensor mixed = make(device, {sizes.rows(), sizes.width()}, dtype, vectors), dy = maker.random({sizes.rows(), sizes.values()});
    std::vector<double> raw = maker.numbers(sizes.rows() * gates);
    if (like) std::fill(raw.begin(), raw.end(), *like);
    const Tensor projected = make(device, {sizes.rows(), gates}, dtype, raw);
    const Tensor step_bias = maker.random({sizes.decays()});
    std::vector<double> rates = maker.numbers(sizes.value_heads);
    for (double& rate : rates) rate += decay;
    DeltaRuleInputs in{mixed, projected, 1, sizes.value_heads + 2, step_bias, make(device, {sizes.value_heads}, dtype, rates)};
    if (sizes.channel_decays) {
        in.decays = maker.random({sizes.rows(), sizes.decays() + 3});
        in.decay_begin = 2;
    }
    const Dtype kept = statistics_dtype(dtype);
    const Tensor d_projected = maker.zeros(projected.shape()), d_decays = sizes.channel_decays ? maker.zeros(in.decays.shape()) : Tensor{};
    const Tensor d_bias = maker.zeros({sizes.decays()}, kept), d_rates = maker.zeros({sizes.value_heads}, kept);
    std::vector<std::vector<double>> results{read(delta_rule(in, sizes))};
    results.push_back(read(delta_rule_backward(dy, in, sizes, d_projected, d_bias, d_rates, d_decays)));
    for (const Tensor& tensor : {d_projected, d_bias, d_rates}) results.push_back(read(tensor));
    if (sizes.channel_decays) results.push_back(read(d_decays));
    return results;
}

void expect_the_cpus(Dtype dtype, const DeltaRuleSizes& sizes, double decay = 0) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    const auto expected = run_rule(cpu, dtype, sizes, decay), actual = run_rule(gpu, dtype, sizes, decay);
    // In bf16 factors of products are rounded, as in Triton's kernels of flash-linear-attention.
    const double tolerance = dtype == Dtype::bf16 ? 0.02 : dtype == Dtype::fp32 ? 6e-6 : 1e-12;
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
        ASSERT_EQ(actual[i].size(), expected[i].size());
        const double largest = model::largest(expected[i]);
        // Gradients of decays are differences of sums of about one, times the decay's rate; in bf16 the factors' rounding is more, and more
        // of what is left of the differences.
        const double of_decays = dtype == Dtype::bf16 ? 2 * std::max(largest, 1e-2) : std::max(largest, std::exp(decay));
        const auto heads = static_cast<std::size_t>(sizes.value_heads);
        for (std::size_t k = 0; k < actual[i].size(); ++k) {
            const bool strength = i == 2 && k % (2 * heads + 3) <= heads;
            ASSERT_NEAR(actual[i][k], expected[i][k], tolerance * (i < 2 || strength ? largest : of_decays))
                << "result " << i << ", value " << k << ", " << sizes.places << " places, chunks of " << sizes.chunk << ", key heads "
                << sizes.key_heads << ", by channels " << sizes.channel_decays;
        }
    }
}

DeltaRuleSizes small_rule(std::int64_t places, std::int64_t chunk, std::int64_t key_heads, bool channels) {
    return {.places = places,
            .batch = 2,
            .key_heads = key_heads,
            .value_heads = 4,
            .key_dim = 3,
            .value_dim = 5,
            .chunk = chunk,
            .channel_decays = channels};
}

class RuleKernels : public testing::TestWithParam<Dtype> {};

TEST_P(RuleKernels, AreTheCpusWhateverChunksAndHeads) {
    for (const std::int64_t places : {1, 5, 12, 13}) {
        for (const std::int64_t chunk : {1, 4, 6, 64}) {
            for (const bool channels : {false, true}) {
                for (const std::int64_t key_heads : {1, 2, 4}) expect_the_cpus(GetParam(), small_rule(places, chunk, key_heads, channels));
            }
        }
    }
    DeltaRuleSizes strong = small_rule(13, 4, 2, false);
    strong.strength = 2;
    expect_the_cpus(GetParam(), strong);
}

TEST_P(RuleKernels, AreTheSameByPacks) {
    const DeltaRuleSizes sizes{.places = 11, .batch = 2, .key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 8, .chunk = 4};
    expect_the_cpus(GetParam(), sizes);
    EmulatedDevice gpu(emulated_traits(false));
    (void)run_rule(gpu, GetParam(), sizes);
    // Two blocks and three chunks: forward values, outputs and states; back values and states of what is made again, and of each pass.
    EXPECT_EQ(gpu.launcher().packed, 2 + 2 + 3 + 1 + 2 + 2 + 3 + 3);
}

// Whole chunks, which are those of a real model, with heads of its size.
TEST_P(RuleKernels, AreTheCpusInChunksOf64) {
    const DeltaRuleSizes sizes{.places = 150, .batch = 1, .key_heads = 1, .value_heads = 2, .key_dim = 32, .value_dim = 32};
    expect_the_cpus(GetParam(), sizes);
    DeltaRuleSizes channels = sizes;
    channels.channel_decays = true;
    expect_the_cpus(GetParam(), channels);
}

// Scores are whole matrices: what later places would give to earlier ones would be exp of large numbers, and is left out.
TEST_P(RuleKernels, LeaveOutWhatIsNotSeenHoweverLarge) {
    for (const bool channels : {false, true}) {
        DeltaRuleSizes sizes = small_rule(20, 10, 2, channels);
        expect_the_cpus(GetParam(), sizes, 6);
        EmulatedDevice gpu(emulated_traits(false));
        for (const auto& values : run_rule(gpu, GetParam(), sizes, 6)) {
            for (const double value : values) EXPECT_TRUE(std::isfinite(value));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(InEachType, RuleKernels, testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST(RuleKernelsByBlocks, TakeAsManyChunksAtOnceAsTheWorkspaceHolds) {
    const DeltaRuleSizes sizes{.places = 2 * 64 + 3, .batch = 1, .key_heads = 256, .value_heads = 512, .key_dim = 1, .value_dim = 1};
    const RuleWorkspace space = rule_workspace(emulated_traits(false), Dtype::fp64, sizes, true);
    EXPECT_EQ(space.block, 2);
    EXPECT_EQ(space.blocks, 2);
    DeltaRuleSizes wide = sizes;
    wide.key_heads = wide.value_heads = 1024;
    const RuleWorkspace narrow = rule_workspace(emulated_traits(false), Dtype::fp64, wide, true);
    EXPECT_EQ(narrow.block, 1) << "pairs of a chunk are 32 MiB, and there are seven of them";
    EXPECT_EQ(narrow.blocks, 3);
    expect_the_cpus(Dtype::fp64, wide);
    // Several chunks in each of several blocks, as a model of thousands of places has them.
    const DeltaRuleSizes blocks{.places = 5 * 64 + 3, .batch = 1, .key_heads = 380, .value_heads = 380, .key_dim = 1, .value_dim = 1};
    const RuleWorkspace of_two = rule_workspace(emulated_traits(false), Dtype::fp64, blocks, true);
    EXPECT_EQ(of_two.block, 2);
    EXPECT_EQ(of_two.blocks, 4) << "the last chunk, a short one, alone";
    expect_the_cpus(Dtype::fp64, blocks);
}

/// Root of the sum of squared differences over that of squares.
double relative_error(const std::vector<double>& actual, const std::vector<double>& exact) {
    double errors = 0, squares = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
        errors += (actual[i] - exact[i]) * (actual[i] - exact[i]);
        squares += exact[i] * exact[i];
    }
    return std::sqrt(errors / squares);
}

// A strength of 2 turns around what a state holds under a key: with like keys X's entries are of that size whatever lies between, and what
// X makes of them is a small difference of large sums, chunk after chunk. Of X in bf16 alone states grow without bound. What stays comes of
// unit keys in bf16, whose lengths are not quite 1: they count where strengths come close to 2.
TEST(RuleKernelsInBf16, MultiplyByWholeInversesWhereStrengthsPass1) {
    constexpr double kWeakDecays = -12;
    for (const bool channels : {false, true}) {
        DeltaRuleSizes sizes{.places = 6 * 64 + 5, .batch = 1, .key_heads = 1, .value_heads = 1, .key_dim = 64, .value_dim = 8};
        sizes.strength = 2;
        sizes.channel_decays = channels;
        for (const auto& [raw, tolerance] : {std::pair{2.0, 0.04}, {4.0, 0.1}}) {
            CpuDevice cpu;
            EmulatedDevice gpu(emulated_traits(false));
            const auto exact = run_rule(cpu, Dtype::fp64, sizes, kWeakDecays, raw);
            const auto actual = run_rule(gpu, Dtype::bf16, sizes, kWeakDecays, raw);
            for (std::size_t i = 0; i < 3; ++i) {
                EXPECT_LE(relative_error(actual.at(i), exact.at(i)), tolerance)
                    << "result " << i << ", raw strength " << raw << ", by channels " << channels;
            }
        }
    }
}

TEST(RuleKernelsInBf16, KeepWhatIsLeftOfInversesThereAlone) {
    DeltaRuleSizes sizes = small_rule(64, 64, 2, false);
    const KernelTraits card = emulated_traits(false);
    const std::int64_t usual = rule_workspace(card, Dtype::bf16, sizes, true).total;
    EXPECT_EQ(rule_workspace(card, Dtype::bf16, sizes, true).parts_of_inverses(), 1);
    sizes.strength = 2;
    const RuleWorkspace strong = rule_workspace(card, Dtype::bf16, sizes, true);
    EXPECT_EQ(strong.parts_of_inverses(), 2);
    EXPECT_EQ(strong.total, usual + sizes.batch * sizes.value_heads * 64 * 64 * 2);
    for (const Dtype whole : {Dtype::fp32, Dtype::fp64}) EXPECT_EQ(rule_workspace(card, whole, sizes, true).parts_of_inverses(), 1);
}

class LastRules final : public OpListener {
public:
    void on_op(const OpRecord& record) override {
        launches += record.launches;
        if (record.name == "delta_rule" || record.name == "delta_rule_backward") records.push_back(record);
    }
    std::vector<OpRecord> records;
    std::int64_t launches = 0;  ///< of all ops
};

void expect_what_the_record_says(Dtype dtype, const DeltaRuleSizes& sizes) {
    EmulatedDevice gpu(emulated_traits(false));
    LastRules rules;
    gpu.set_listener(&rules);
    (void)run_rule(gpu, dtype, sizes);
    gpu.set_listener(nullptr);
    ASSERT_EQ(rules.records.size(), 2U);
    const OwnKernels &forward = rules.records[0].own, &backward = rules.records[1].own;
    EXPECT_DOUBLE_EQ(forward.product_flops + backward.product_flops, gpu.launcher().multiplied);
    EXPECT_DOUBLE_EQ(forward.bytes + backward.bytes, gpu.launcher().moved);
    EXPECT_EQ(rules.launches, gpu.launcher().launches());
}

TEST(RuleKernelsByBlocks, MultiplyAndMoveWhatTheRecordSays) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp32}) {
        for (const bool channels : {false, true}) {
            for (const std::int64_t key_heads : {2, 4}) {
                for (const std::int64_t strength : {1, 2}) {
                    DeltaRuleSizes sizes = small_rule(14, 4, key_heads, channels);
                    sizes.strength = strength;
                    expect_what_the_record_says(dtype, sizes);
                }
            }
        }
    }
}

/// Does launches [begin, end) alone, counted from 0.
class WindowLauncher {
public:
    static WindowLauncher& of(Device& /*device*/) {
        static WindowLauncher only;
        return only;
    }
    void open(std::int64_t begin, std::int64_t count) {
        at_ = 0;
        begin_ = begin;
        end_ = begin + count;
    }
    template <class Body>
    void each(std::int64_t count, const Body& body) {
        if (is_open()) host_.each(count, body);
    }
    template <int N, class Body>
    void packs(std::int64_t count, const Body& body) {
        if (is_open()) host_.packs<N>(count, body);
    }
    template <class Body>
    void teams(std::int64_t count, int lanes, const Body& body) {
        if (is_open()) host_.teams(count, lanes, body);
    }
    void zero(void* memory, std::int64_t bytes) {
        if (is_open()) host_.zero(memory, bytes);
    }
    void gemm(const Gemm& gemm) {
        if (is_open()) host_.gemm(gemm);
    }

private:
    bool is_open() {
        const std::int64_t now = at_++;
        return now >= begin_ && now < end_;
    }
    HostLauncher host_;
    std::int64_t at_ = 0, begin_ = 0, end_ = 0;
};

constexpr std::int64_t kEnd = 3;  ///< places of the last chunk

/// Outputs and gradients of the last places, as if the states in front of them were 0: of all launches those of their block alone are done.
std::vector<std::vector<std::byte>> run_end(Device& device, std::int64_t places) {
    const DeltaRuleSizes s{.places = places, .batch = 1, .key_heads = 1, .value_heads = 1, .key_dim = 8, .value_dim = 504};
    Maker maker(device, Dtype::bf16);
    const auto reserve = [&](const Shape& shape, Dtype dtype = Dtype::fp32) {
        return device.zeros(shape, dtype, MemoryCategory::activations, "reserved");
    };
    const auto marked = [&](std::int64_t width) {
        Tensor tensor = reserve({places, width}, Dtype::bf16);
        const Tensor values = maker.random({kEnd, width});
        std::vector<std::byte> bytes(static_cast<std::size_t>(values.bytes()));
        device.read(values, bytes.data());
        device.write(tensor.slice(places - kEnd, places), bytes.data());
        return tensor;
    };
    const Tensor mixed = marked(s.width()), gates = marked(s.width()), dy = marked(s.values()), heads = maker.random({1});
    const Tensor norms = reserve({places, 2, 1}), units = reserve({places, 2, 1, s.key_dim}), sum = reserve({1});
    const Tensor y = reserve(dy.shape(), Dtype::bf16), dx = reserve(mixed.shape(), Dtype::bf16),
                 d_gates = reserve(gates.shape(), Dtype::bf16);
    WindowLauncher& launcher = WindowLauncher::of(device);
    const auto space = [&](bool backward) { return rule_workspace(device.traits(), Dtype::bf16, s, backward); };
    const RuleWorkspace there = space(false), back = space(true);
    launcher.open(1 + 10 * (there.blocks - 1) + 3 * (there.chunks() - 1), 13);
    delta_rule<WindowLauncher>(device, {mixed,
                                        gates,
                                        gates,
                                        heads,
                                        heads,
                                        y,
                                        norms,
                                        {},
                                        reserve({s.key_dim, s.value_dim}),
                                        s,
                                        s.width(),
                                        1,
                                        s.width(),
                                        2,
                                        reserve({there.total / 4})});
    launcher.open(2 + 7 * (back.blocks - 1) + 3 * (back.chunks() - 1), 24);
    delta_rule_backward<WindowLauncher>(device, {dy,        mixed, gates,     gates,   heads,
                                                 heads,     dx,    d_gates,   d_gates, sum,
                                                 sum,       norms, {},        {},      {},
                                                 {},        {},    units,     {},      s,
                                                 s.width(), 1,     s.width(), 2,       reserve({back.total / 4})});
    std::vector<std::vector<std::byte>> kept;
    for (const Tensor& tensor : {y, dx, d_gates, norms}) {
        const Tensor end = tensor.slice(places - kEnd, places);
        kept.emplace_back(static_cast<std::size_t>(end.bytes()));
        device.read(end, kept.back().data());
    }
    return kept;
}

TEST(RuleKernelsByBlocks, FindRowsBeyond32Bits) {
    if (!ReservedMemory::can_reserve(std::int64_t{64} << 30)) GTEST_SKIP() << "no addresses may be reserved here";
    constexpr std::int64_t kPlaces = 64 * 67'188 + kEnd;
    static_assert(kPlaces * 504 > std::int64_t{1} << 31);
    EmulatedDevice small(emulated_traits(false));
    FarDevice large(emulated_traits(false));
    const auto alone = run_end(small, kEnd), far = run_end(large, kPlaces);
    for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_TRUE(far[i] == alone[i]) << "result " << i;
        EXPECT_TRUE(std::any_of(alone[i].begin(), alone[i].end(), [](std::byte b) { return b != std::byte{0}; })) << i;
    }
}

// Qwen3-Next, 4,096 places on one rank.
TEST(RuleKernelsByBlocks, StayWithin256MebibytesBesideStates) {
    const DeltaRuleSizes sizes{.places = 4096, .batch = 1, .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128};
    const KernelTraits card = emulated_traits(false);
    for (const bool backward : {false, true}) {
        const RuleWorkspace space = rule_workspace(card, Dtype::bf16, sizes, backward);
        EXPECT_GT(space.block, 8);
        EXPECT_EQ(space.length, 64);
        EXPECT_EQ(space.chunks(), 64);
        EXPECT_EQ(space.blocks, (64 + space.block - 1) / space.block);
        const std::int64_t states = backward ? (space.blocks + 2) * 32 * 128 * 128 * 4 + 64 * 2 * 32 * 4 : 0;
        EXPECT_LE(space.total - space.library_bytes - states, std::int64_t{256} << 20);
        EXPECT_EQ(space.library_bytes, matmul_workspace_bytes(card));
    }
}

}  // namespace
}  // namespace mgplan::runtime::cuda::delta_rule_kernels_test
