// What ops say that a GPU launches for them is what its kernel table launches: the host's time of a step is priced by it.

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/training/rank_trainer.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "tests/gpu/kinds.hpp"
#include "tests/model/ops/every_op.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"
#include "tests/runtime/cuda/one_way_plans.hpp"

namespace mgplan::runtime::cuda::launches_test {
namespace {

using model::Maker;

/// Counts what is launched between an op's record and the next one's, and all of it.
class LaunchListener final : public model::OpListener {
public:
    explicit LaunchListener(EmulatedDevice& device) : device_(device), begin_(device.launcher().launches()) { device.set_listener(this); }
    ~LaunchListener() override {
        close();
        EXPECT_EQ(groups_, 0);
        EXPECT_EQ(sum_, device_.launcher().launches() - begin_) << "nothing is launched in front of the first op";
        EXPECT_GT(sum_, 0);
        device_.set_listener(nullptr);
    }
    LaunchListener(const LaunchListener&) = delete;
    LaunchListener& operator=(const LaunchListener&) = delete;

    /// The ops so far, but the last one, each with what it launched.
    [[nodiscard]] const std::vector<std::pair<std::string, std::int64_t>>& ops() const { return all_; }

    void on_op(const model::OpRecord& record) override {
        close();
        before_ = device_.launcher().launches();
        open_ = record.name;
        said_ = record.launches;
        sum_ += said_;
        zeros_ += open_ == "zero" ? 1 : 0;
    }
    [[nodiscard]] std::int64_t zeros() const { return zeros_; }

private:
    void close() {
        if (open_.empty()) return;
        const std::int64_t counted = device_.launcher().launches() - before_;
        if (open_ == "grouped_matmul" && counted == 0) {
            groups_ = said_;  // their columns are transposed first, group by group
            return;
        }
        const std::int64_t product = groups_ > 0 && open_ == "transpose_codes" && counted == said_ + 1 ? 1 : 0;
        groups_ -= product;
        EXPECT_EQ(said_, counted - product) << open_;
        all_.emplace_back(open_, counted - product);
    }

    EmulatedDevice& device_;
    std::vector<std::pair<std::string, std::int64_t>> all_;
    std::int64_t begin_, sum_ = 0, zeros_ = 0;
    std::string open_;
    std::int64_t said_ = 0, before_ = 0;
    std::int64_t groups_ = 0;  ///< whose products are still to come
};

class Launches : public testing::TestWithParam<Dtype> {};

TEST_P(Launches, AreWhatEachOpSays) {
    for (const bool fused : {false, true}) {
        EmulatedDevice gpu(emulated_traits(fused));
        Maker maker(gpu, GetParam());
        const LaunchListener listener(gpu);
        (void)run_every_op(maker);
        (void)run_fp8_ops(maker);
        for (const bool of_32 : {false, true}) {
            (void)run_fp8_block_ops(maker, of_32);
            (void)run_short_fp8_block_ops(maker, of_32);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(InEachType, Launches, testing::Values(Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

void take_step(model::RankTrainer& trainer) {
    const auto tokens = [](std::int64_t /*sequence*/, std::span<std::int32_t> into) { std::fill(into.begin(), into.end(), 7); };
    (void)trainer.step(tokens, 1e-2);
}

/// Zeros between ops of the second step of an only rank.
std::int64_t zeros_of_a_step(const model::TrainingTask& task, const model::KernelTraits& card) {
    EmulatedDevice device(card);
    runtime::InProcessWorld world(1);
    model::RankTrainer trainer(task, device, world.view(0));
    take_step(trainer);
    const LaunchListener listener(device);
    take_step(trainer);
    return listener.zeros();
}

// Arrays of many parameters, parts of sums over rows, attention of a library and its statistics.
TEST(LaunchesOfAStep, AreWhatEachOpSays) {
    std::vector<model::KernelTraits> cards{emulated_traits(false), emulated_traits(true)};
    for (const bool backward : {false, true}) {
        cards.push_back(emulated_traits(true));
        cards.back().fused_plans = std::make_shared<OneWayPlans>(backward);
    }
    for (const model::KernelTraits& card : cards) {
        const auto task = tests::task_for(tests::small_llama(tests::kScale), {.name = "one"}, Precision::bf16, tests::kPlaces);
        EXPECT_EQ(zeros_of_a_step(task, card), 0);
    }
}

TEST(LaunchesOfAStep, CopyHeadsForALibraryThatTakesThemApartAlone) {
    const auto task = tests::task_for(tests::small_llama(tests::kScale), {.name = "one"}, Precision::bf16, tests::kPlaces);
    for (const bool apart : {false, true}) {
        model::KernelTraits card = emulated_traits(true);
        if (apart) card.fused_plans = std::make_shared<PlansForHeadsApart>();
        EmulatedDevice device(card);
        runtime::InProcessWorld world(1);
        model::RankTrainer trainer(task, device, world.view(0));
        device.launcher().emulation().asked = 0;
        std::int64_t copies = 0;
        {
            const LaunchListener listener(device);
            take_step(trainer);
            for (const auto& [op, launches] : listener.ops()) copies += op == "columns" || op == "set_columns" ? launches : 0;
        }
        const std::int64_t layers = task.model.layers * task.layout.num_microbatches;
        EXPECT_EQ(copies, apart ? 6 * layers : 0);
        EXPECT_EQ(device.launcher().emulation().asked, 2 * layers) << "and is asked for all of them";
    }
}

// Behind the update largest magnitudes of all weights are found in one launch, and all weights cast in one.
TEST(LaunchesOfAStep, CastAllWeightsThatAreStoredInFp8AtATime) {
    for (const Fp8Recipe recipe : {Fp8Recipe::tensorwise, Fp8Recipe::delayed}) {
        auto task = tests::task_for(tests::small_llama(tests::kScale), {.name = "one"}, Precision::fp8, tests::kPlaces);
        task.training.megatron.fp8_recipe = recipe;
        task.training.fp8_parameters = true;
        EmulatedDevice device(emulated_traits(false));
        runtime::InProcessWorld world(1);
        model::RankTrainer trainer(task, device, world.view(0));
        take_step(trainer);
        std::vector<std::string> casts;
        {
            const LaunchListener listener(device);
            take_step(trainer);
            device.report({"end", 0, 0, 0, 0});
            bool behind = false;
            for (const auto& [op, launches] : listener.ops()) {
                if (behind && (op == "largest_magnitude" || op == "cast_to_fp8")) casts.push_back(fmt::format("{} {}", op, launches));
                behind = behind || op == "adam_step";
            }
        }
        EXPECT_EQ(casts, (std::vector<std::string>{"largest_magnitude 1", "cast_to_fp8 1"}));
    }
}

TEST(LaunchesOfAStep, OfOtherLayersAndOptimizersAreWhatEachOpSays) {
    for (tests::Kind kind : tests::kinds()) {
        if (kind.layout.schedule || kind.fully_sharded) continue;
        SCOPED_TRACE(kind.name);
        kind.layout = {.name = "one"};
        const std::int64_t zeros = zeros_of_a_step(tests::task_for(kind, Precision::bf16), emulated_traits(true));
        // Dropout on embeddings adds to nothing.
        EXPECT_EQ(zeros > 0, kind.model.hidden_dropout > 0);
    }
}

}  // namespace
}  // namespace mgplan::runtime::cuda::launches_test
