// What `verify --rank R` takes the host of a GPU to launch in a step is what the kernels' bodies launch on the host.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "cli/time_attribution.hpp"
#include "plan/json/cluster_json.hpp"
#include "runtime/comm/alone/lone_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/gpu/kinds.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::cli::verify_alone_test {
namespace {

using runtime::cuda::emulated_traits;
using runtime::cuda::EmulatedDevice;

/// Adds up what is launched from an op's record to the next one's or to a collective, whose copies stand for no launch of the rank's.
class LaunchCounter final : public model::OpListener, public model::CollectiveListener {
public:
    explicit LaunchCounter(EmulatedDevice& device) : device_(device) {}
    void on_op(const model::OpRecord& /*record*/) override {
        close();
        begun_ = device_.launcher().launches();
    }
    void on_collective(const model::CollectiveRecord& /*record*/) override { close(); }
    [[nodiscard]] std::int64_t launches() {
        close();
        return launches_;
    }

private:
    void close() {
        if (begun_) launches_ += device_.launcher().launches() - *begun_;
        begun_.reset();
    }
    EmulatedDevice& device_;
    std::optional<std::int64_t> begun_;
    std::int64_t launches_ = 0;
};

std::int64_t counted(const model::TrainingTask& asked, int rank) {
    model::TrainingTask task = asked;
    task.balanced_routing = true;
    task.gradients.on_non_finite = model::OnNonFinite::skip;
    EmulatedDevice device(emulated_traits(true));
    const std::vector<std::byte> numbers = runtime::stand_in_numbers();
    const runtime::LoneWorld world(rank, static_cast<int>(task.layout.sizes.world), numbers.data());
    model::RankTrainer trainer(task, device, world.view());
    const auto tokens = [](std::int64_t /*sequence*/, std::span<std::int32_t> into) { std::fill(into.begin(), into.end(), 7); };
    (void)trainer.step(tokens, 1e-2);
    LaunchCounter counter(device);
    device.set_listener(&counter);
    trainer.set_listener(&counter);
    (void)trainer.step(tokens, 1e-2);
    trainer.set_listener(nullptr);
    device.set_listener(nullptr);
    return counter.launches();
}

/// Of a cluster on which a launch takes the host a second, so that nothing else counts.
double predicted(const model::TrainingTask& task, int rank, const model::KernelTraits& traits) {
    ClusterSpec cluster = load_cluster("dgx-h100");
    cluster.calibration.emplace().launch.seconds = 1;
    RunOutcome outcome;
    outcome.plan.cluster = cluster;
    outcome.plan.training = task.training;
    outcome.task = task;
    outcome.traits = traits;
    outcome.values.emulated_partners = true;
    outcome.values.steps.resize(2);
    outcome.values.ranks.emplace_back().rank = rank;
    reports::TimeComparison time;
    attribute_alone(outcome, cluster, time);
    return time.predicted;
}

struct Alone {
    std::string name;
    ModelSpec model;
    tests::Case layout;
    std::vector<int> ranks;
};

class VerifyAlone : public testing::TestWithParam<Alone> {};

TEST_P(VerifyAlone, LaunchesWhatIsCounted) {
    const auto task = tests::task_for(tests::Kind{"", GetParam().model, GetParam().layout}, Precision::bf16);
    std::vector<double> all;
    for (const int rank : GetParam().ranks) {
        const double launches = predicted(task, rank, emulated_traits(true));
        EXPECT_EQ(launches, static_cast<double>(counted(task, rank))) << "rank " << rank;
        EXPECT_GT(launches, 100);
        all.push_back(launches);
    }
    if (all.size() > 1) {
        EXPECT_NE(all.front(), all.back()) << "other stages have other layers";
    }
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, VerifyAlone,
    testing::Values(Alone{"alone", tests::small_llama(tests::kScale), {.name = ""}, {0}},
                    Alone{"tp2_pp2", tests::small_llama(tests::kScale), {.name = "", .tp = 2, .pp = 2, .sequence_parallel = true}, {0, 3}},
                    Alone{"mixture_ep2", tests::small_mixture(RouterScore::softmax), {.name = "", .dp = 2, .ep = 2}, {1}},
                    Alone{"latent_attention_dp2", model::small_deepseek_v3(), {.name = "", .dp = 2}, {1}}),
    [](const auto& test) { return test.param.name; });

// Behind the first, eager step graphs of layers zero a buffer in one launch, where eager steps zero what lies between products' gradients.
TEST(VerifyAloneWithGraphs, PricesTheStepsBehindTheEagerOne) {
    auto task = tests::task_for(tests::Kind{"", tests::small_llama(tests::kScale), {.name = ""}}, Precision::bf16);
    const double eager = predicted(task, 0, emulated_traits(true));
    task.layout.cuda_graphs = {CudaGraphScope::full_iteration};
    EXPECT_EQ(predicted(task, 0, emulated_traits(true)), eager);
    task.layout.cuda_graphs = {CudaGraphScope::layer};
    EXPECT_LT(predicted(task, 0, emulated_traits(true)), eager);
}

// On a CPU ops have run when their calls return, so what the host launches is in their times.
TEST(VerifyAloneOnACpu, CountsNoLaunches) {
    const auto task = tests::task_for(tests::Kind{"", tests::small_llama(tests::kScale), {.name = ""}}, Precision::bf16);
    const double seconds = predicted(task, 0, runtime::CpuDevice::kernel_traits());
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 1);
}

}  // namespace
}  // namespace mgplan::cli::verify_alone_test
