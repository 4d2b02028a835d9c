// Kernels that take dozens of arrays at a time: the same bits as array by array, whatever the lengths, and few launches.

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "model/ops/clip_factor.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/fp8.hpp"
#include "model/ops/fp8_history.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/ops/single_steps.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::runtime::cuda::many_arrays_test {
namespace {

using namespace model;

/// Elements around whole packs, around what a team takes and what a piece of a sum has; more arrays than one launch or two take.
std::vector<std::int64_t> lengths() {
    std::vector<std::int64_t> list{8191, 8192, 8193, 20000, 1, 7, 8, 9};
    for (std::int64_t i = 0; std::ssize(list) < 2 * kArraysOfALaunch + 3; ++i) list.push_back(1 + i * 37 % 300);
    return list;
}

/// Each with values of its own; every third one value further than an aligned address.
std::vector<Tensor> arrays_of(Maker& maker, Dtype dtype) {
    std::vector<Tensor> all;
    for (const std::int64_t elements : lengths()) {
        const std::int64_t begin = all.size() % 3 == 2 ? 1 : 0;
        all.push_back(maker.random({begin + elements}, dtype).slice(begin, begin + elements));
    }
    return all;
}

using Values = std::vector<std::vector<double>>;

void add_values(const std::vector<Tensor>& arrays, Values& values) {
    for (const Tensor& each : arrays) values.push_back(read(each));
}

/// What Adam makes of all arrays, at once or one by one.
Values after_adam(Device& device, Dtype wide, Dtype moments, Dtype gradients, bool at_once) {
    Maker maker(device, wide);
    const bool copies = wide == Dtype::fp32;
    const auto main = arrays_of(maker, wide), first = arrays_of(maker, moments), gradient = arrays_of(maker, gradients);
    std::vector<Tensor> second, parameter;
    std::vector<AdamArrays> all;
    for (std::size_t i = 0; i < main.size(); ++i) {
        second.push_back(maker.zeros(main[i].shape(), moments));
        parameter.push_back(copies ? maker.zeros(main[i].shape(), Dtype::bf16) : Tensor());
        all.push_back({main[i], first[i], second[i], gradient[i], parameter[i], i % 2 == 0});
    }
    const AdamHyperparameters hyper{.learning_rate = 0.01, .weight_decay = 0.1, .step = 3, .gradient_factor = 0.7};
    if (at_once) {
        adam_step(all, hyper);
    } else {
        for (const AdamArrays& one : all) {
            AdamHyperparameters own = hyper;
            if (!one.decays) own.weight_decay = 0;
            adam_step(one.main, one.exp_avg, one.exp_avg_sq, one.gradient, own, one.parameter);
        }
    }
    Values values;
    for (const auto* arrays : {&main, &first}) add_values(*arrays, values);
    add_values(second, values);
    if (copies) add_values(parameter, values);
    return values;
}

TEST(ManyArrays, AreMovedByAdamAsEachAlone) {
    for (const auto& [wide, moments] : {std::pair{Dtype::fp64, Dtype::fp64}, {Dtype::fp32, Dtype::fp32}, {Dtype::fp32, Dtype::bf16}}) {
        const Dtype gradients = moments == Dtype::bf16 ? Dtype::bf16 : wide;
        EmulatedDevice gpu(emulated_traits(false));
        CpuDevice cpu;
        const Values expected = after_adam(gpu, wide, moments, gradients, false);
        gpu.launcher().teamed = 0;
        EXPECT_EQ(after_adam(gpu, wide, moments, gradients, true), expected) << to_string(moments);
        EXPECT_EQ(gpu.launcher().teamed, 3) << "launches for 99 arrays";
        EXPECT_EQ(after_adam(cpu, wide, moments, gradients, true), after_adam(cpu, wide, moments, gradients, false)) << to_string(moments);
    }
}

TEST(ManyArrays, AreMovedByAMomentumAsEachAlone) {
    for (const auto rule : {MomentumRule::sgd, MomentumRule::lion}) {
        const auto run = [&](Device& device, bool at_once) {
            Maker maker(device, Dtype::fp32);
            const auto main = arrays_of(maker, Dtype::fp32), momentum = arrays_of(maker, Dtype::fp32),
                       gradient = arrays_of(maker, Dtype::bf16);
            std::vector<Tensor> parameter;
            std::vector<MomentumArrays> all;
            for (std::size_t i = 0; i < main.size(); ++i) {
                parameter.push_back(maker.zeros(main[i].shape(), Dtype::bf16));
                all.push_back({main[i], momentum[i], gradient[i], parameter[i], i % 2 == 0});
            }
            const MomentumHyperparameters hyper{.rule = rule, .learning_rate = 0.01, .weight_decay = 0.1, .gradient_factor = 0.7};
            if (at_once) {
                momentum_step(all, hyper);
            } else {
                for (const MomentumArrays& one : all) {
                    MomentumHyperparameters own = hyper;
                    if (!one.decays) own.weight_decay = 0;
                    momentum_step(one.main, one.momentum, one.gradient, own);
                    copy(one.main, one.parameter);
                }
            }
            Values values;
            for (const auto* arrays : {&main, &momentum, static_cast<const std::vector<Tensor>*>(&parameter)}) add_values(*arrays, values);
            return values;
        };
        EmulatedDevice gpu(emulated_traits(false));
        CpuDevice cpu;
        const Values expected = run(gpu, false);
        gpu.launcher().teamed = 0;
        EXPECT_EQ(run(gpu, true), expected);
        EXPECT_EQ(gpu.launcher().teamed, 3) << "launches for 99 arrays";
        EXPECT_EQ(run(cpu, true), run(cpu, false));
    }
}

TEST(ManyArrays, HaveTheSumsOfSquaresOfEachAlone) {
    EmulatedDevice gpu(emulated_traits(false));
    CpuDevice cpu;
    for (Device* device : std::vector<Device*>{&gpu, &cpu}) {
        Maker maker(*device, Dtype::fp32);
        // Types by turns, and an empty array among them.
        std::vector<Tensor> all = arrays_of(maker, Dtype::fp32);
        const std::vector<Tensor> narrow = arrays_of(maker, Dtype::bf16);
        all.insert(all.begin() + 50, narrow.begin(), narrow.end());
        all.insert(all.begin() + 3, maker.zeros({0}));
        std::vector<double> expected;
        for (const Tensor& each : all) expected.push_back(sum_of_squares(each));
        gpu.launcher().teamed = 0;
        const Tensor sums = device->zeros({std::ssize(all)}, Dtype::fp64, MemoryCategory::workspace, "sums");
        const int reads = gpu.reads(), writes = gpu.writes();
        sums_of_squares(all, sums);
        EXPECT_EQ(gpu.reads() + gpu.writes(), reads + writes) << "and the host waits for none";
        EXPECT_EQ(read(sums), expected);
        if (device != &gpu) continue;
        EXPECT_EQ(gpu.launcher().teamed, 2 + 3 + 2 + 5) << "launches for 50, 99 and 49 arrays, and for all sums";
    }
}

/// Codes, scales and what becomes of places that several arrays raise, at once or one by one. With `found` each array has a place of its
/// own, whatever that holds.
Values after_casts(Device& device, Dtype dtype, bool at_once, bool found) {
    Maker maker(device, dtype);
    const auto arrays = arrays_of(maker, dtype), codes = [&] {
        std::vector<Tensor> made;
        for (const Tensor& each : arrays_of(maker, dtype)) {
            const std::int64_t begin = made.size() % 4 == 3 ? 1 : 0, end = begin + each.elements();
            made.push_back(device.zeros({end}, Dtype::fp8, MemoryCategory::parameters, "codes").slice(begin, end));
        }
        return made;
    }();
    // Each array has a place of its own but every fifth, which has that of the one before; some places hold more than any array.
    const std::int64_t count = std::ssize(arrays);
    const Tensor scales = maker.zeros({count, kFp8ScaleElements}, Dtype::fp32);
    std::vector<RaisedLargest> raised;
    std::vector<Fp8Cast> casts;
    for (std::int64_t i = 0; i < count; ++i) {
        const Tensor& x = arrays[static_cast<std::size_t>(i)];
        const std::int64_t at = i % 5 == 4 && !found ? i - 1 : i;
        const Tensor scale = scales.slice(at, at + 1).view({kFp8ScaleElements});
        if (i % 7 == 0) fill(scale, 3);
        if (i % 11 == 5) fill(x, 0);
        raised.push_back({x, scale.slice(0, 1)});
        casts.push_back({x, {codes[static_cast<std::size_t>(i)], scale}});
    }
    if (at_once) {
        if (found)
            find_all_largest(raised);
        else
            raise_all_largest(raised);
        quantise_all(casts);
    } else {
        for (std::size_t i = 0; i < raised.size(); ++i) {
            if (found)
                find_largest(raised[i].x, casts[i].into.scale);
            else
                raise_largest(raised[i].x, raised[i].largest);
        }
        for (const auto& [x, into] : casts) quantise(x, into);
    }
    Values values{read(scales)};
    for (const Tensor& each : codes) {
        std::vector<std::uint8_t> bits(static_cast<std::size_t>(each.elements()));
        device.read(each, bits.data());
        values.emplace_back(bits.begin(), bits.end());
    }
    return values;
}

TEST(ManyArrays, AreCastToFp8AsEachAlone) {
    for (const auto dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16}) {
        for (const bool found : {false, true}) {
            SCOPED_TRACE(std::string(to_string(dtype)) + (found ? ", found" : ", raised"));
            EmulatedDevice gpu(emulated_traits(false));
            CpuDevice cpu;
            const Values expected = after_casts(cpu, dtype, false, found);
            EXPECT_EQ(after_casts(cpu, dtype, true, found), expected);
            EXPECT_EQ(after_casts(gpu, dtype, false, found), expected);
            gpu.launcher().teamed = 0;
            EXPECT_EQ(after_casts(gpu, dtype, true, found), expected);
            EXPECT_EQ(gpu.launcher().teamed, 3 + 3) << "launches for 99 arrays, twice";
        }
    }
}

/// {squared norm, factor} of sums of squares that are added up from the first on, 100 of experts behind them, in two replicas.
std::vector<double> clipped(Device& device, const std::vector<double>& values, bool experts, double guard, double clip_norm) {
    const auto one = [&](double value) { return make(device, {1}, Dtype::fp64, {value}); };
    const Tensor sum = one(-1), outcome = make(device, {2}, Dtype::fp64, {-1, -1});
    add_in_order(make(device, {std::ssize(values)}, Dtype::fp64, values), sum);
    clip_factor(sum, experts ? one(100) : Tensor(), one(guard), {.clip_norm = clip_norm, .replicas = 2}, outcome);
    return read(outcome);
}

TEST(ClipFactors, AreThoseOfTheNormAndNotANumberWhereSomethingIsNotFinite) {
    EmulatedDevice gpu(emulated_traits(false));
    CpuDevice cpu;
    const double infinite = std::numeric_limits<double>::infinity(), nan = std::nan("");
    for (Device* device : std::vector<Device*>{&gpu, &cpu}) {
        using Pair = std::vector<double>;
        EXPECT_EQ(clipped(*device, {30, 20}, false, 1, 10), (Pair{25, 1})) << "a norm of 5";
        EXPECT_EQ(clipped(*device, {30, 20}, false, 1, 5), (Pair{25, 1})) << "no more than allowed";
        EXPECT_EQ(clipped(*device, {30, 20}, false, 1, 2), (Pair{25, 2 / (5 + 1e-6)}));
        EXPECT_EQ(clipped(*device, {30, 20}, true, 1, 2), (Pair{125, 2 / (std::sqrt(125) + 1e-6)})) << "experts are in one replica";
        EXPECT_EQ(clipped(*device, {30, 20}, false, 1, 0), (Pair{25, 1})) << "nothing is clipped";
        EXPECT_EQ(clipped(*device, {}, false, 1, 2), (Pair{0, 1}));
        // From the first on: 1 is lost beside 2^53, and would not be beside another 1.
        EXPECT_EQ(clipped(*device, {0x1p53, 1, 1}, false, 1, 0)[0], 0x1p52);
        EXPECT_EQ(clipped(*device, {1, 1, 0x1p53}, false, 1, 0)[0], 0x1p52 + 1);
        for (const double bad : {infinite, -infinite, nan}) {
            EXPECT_TRUE(std::isnan(clipped(*device, {30, 20}, false, bad, 2)[1])) << bad;
            EXPECT_EQ(clipped(*device, {30, 20}, false, bad, 2)[0], 25);
            EXPECT_TRUE(std::isnan(clipped(*device, {bad, 1}, false, 1, 0)[1])) << bad;
        }
        EXPECT_EQ(clipped(*device, {1, infinite}, false, 1, 2)[0], infinite);
    }
}

TEST(ClipFactors, OnTheDeviceMoveAsTheSameOnesFromTheHostOrNothing) {
    EmulatedDevice gpu(emulated_traits(false));
    CpuDevice cpu;
    for (Device* device : std::vector<Device*>{&gpu, &cpu}) {
        const auto moved = [&](double from_host, const Tensor& factor) {
            Maker maker(*device, Dtype::fp32);
            const Tensor main = maker.random({9}), first = maker.random({9}), second = maker.zeros({9}), gradient = maker.random({9}),
                         parameter = maker.random({9}, Dtype::bf16), other = maker.random({9}), momentum = maker.random({9});
            adam_step(std::array{AdamArrays{main, first, second, gradient, parameter}},
                      {.learning_rate = 0.01, .weight_decay = 0.1, .gradient_factor = from_host}, factor);
            momentum_step(std::array{MomentumArrays{other, momentum, gradient}},
                          {.learning_rate = 0.01, .weight_decay = 0.1, .gradient_factor = from_host}, factor);
            Values values;
            add_values({main, first, second, parameter, other, momentum}, values);
            return values;
        };
        const auto factor = [&](double value) { return make(*device, {1}, Dtype::fp64, {value}); };
        const Values unmoved = moved(1, factor(std::nan("")));
        EXPECT_EQ(moved(2, factor(0.3)), moved(2 * 0.3, Tensor()));
        EXPECT_NE(moved(2, factor(0.3)), moved(2, Tensor()));
        Maker maker(*device, Dtype::fp32);
        EXPECT_EQ(unmoved.front(), read(maker.random({9})));
        EXPECT_EQ(unmoved[1], read(maker.random({9})));
        for (std::size_t i = 0; i < unmoved.size(); ++i) EXPECT_NE(unmoved[i], moved(1, Tensor())[i]) << i;
    }
}

}  // namespace
}  // namespace mgplan::runtime::cuda::many_arrays_test
