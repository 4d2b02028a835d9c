// Column-parallel layers gather their input again beside the product that makes its gradient, and reduce that beside the weight's: in this
// order, with the bits of waiting at once, and so that a rank that fails meanwhile ends the others.

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/training/small_training.hpp"
#include "tests/model/training/watched_world.hpp"

namespace mgplan::model::tp_overlap_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Ops and collectives of one rank, in order.
class EventLog final : public OpListener {
public:
    void on_op(const OpRecord& record) override {
        events.push_back(std::string(record.name) + (record.product.accumulate ? " +=" : ""));
        if (after_op) after_op();
    }
    std::vector<std::string> events;
    std::function<void()> after_op;
};

using Body = std::function<void(int rank, RankTrainer& trainer, EventLog& log)>;

/// Each rank's trainer in a world that is watched.
void on_watched_ranks(const TrainingTask& task, bool at_once, const Body& body) {
    runtime::InProcessWorld world(static_cast<int>(task.layout.sizes.world));
    runtime::run_ranks(world, [&](int rank) {
        runtime::CpuDevice device;
        EventLog log;
        RankTrainer trainer(task, device,
                            watched_world(world.view(rank), {[&log](const std::string& event) { log.events.push_back(event); }, at_once}));
        device.set_listener(&log);
        log.events.clear();
        body(rank, trainer, log);
        device.set_listener(nullptr);
    });
}

/// What happens between the beginning of each collective of that name and its wait.
std::vector<std::vector<std::string>> beside(const std::vector<std::string>& events, const std::string& collective) {
    std::vector<std::vector<std::string>> stretches;
    for (auto begin = events.begin(); begin != events.end(); ++begin) {
        if (*begin != "begin " + collective) continue;
        const auto end = std::find(begin, events.end(), "wait for " + collective);
        stretches.emplace_back(begin + 1, end);
    }
    return stretches;
}

/// Those during which anything happens, each once.
std::vector<std::vector<std::string>> not_waited_for_at_once(std::vector<std::vector<std::string>> stretches) {
    std::erase_if(stretches, [](const auto& each) { return each.empty(); });
    std::sort(stretches.begin(), stretches.end());
    stretches.erase(std::unique(stretches.begin(), stretches.end()), stretches.end());
    return stretches;
}

std::vector<std::string> events_of_a_step(const TrainingTask& task) {
    std::vector<std::string> events;
    on_watched_ranks(task, false, [&](int rank, RankTrainer& trainer, EventLog& log) {
        (void)trainer.step(small::tokens_of, 1e-2);
        if (rank == 0) events = log.events;
    });
    return events;
}

TEST(TensorParallelOverlap, GathersBesideTheFirstProductOfABackwardAndReducesBesideTheSecond) {
    const ModelSpec model = small::llama();
    const std::vector<std::string> events = events_of_a_step(small::task(model, {.tp = 2, .sequence_parallel = true}));
    const auto gathers = not_waited_for_at_once(beside(events, "all_gather in tp"));
    const auto reductions = not_waited_for_at_once(beside(events, "reduce_scatter in tp"));
    EXPECT_THAT(gathers, ElementsAre(ElementsAre("matmul")));
    // Of the first microbatch, whose product writes the gradient, and of the others, which add to it.
    EXPECT_THAT(reductions, ElementsAre(ElementsAre("matmul"), ElementsAre("matmul +=")));
    // Packed projection and first product of the MLP in each layer, and the output layer, in each of eight microbatches.
    const auto early = beside(events, "reduce_scatter in tp");
    EXPECT_EQ(std::count_if(early.begin(), early.end(), [](const auto& each) { return !each.empty(); }), (2 * model.layers + 1) * 8);
}

TEST(TensorParallelOverlap, WithoutSequenceParallelismAllReducesBesideTheWeightsGradient) {
    const std::vector<std::string> events = events_of_a_step(small::task(small::gpt(), {.tp = 2}));
    EXPECT_TRUE(beside(events, "all_gather in tp").empty());
    const auto reductions = not_waited_for_at_once(beside(events, "all_reduce in tp"));
    // With the sums of biases where the layer has one; the output layer has none.
    EXPECT_THAT(reductions, testing::Contains(ElementsAre("matmul +=", "bias_gradient")));
    EXPECT_THAT(reductions, testing::Contains(ElementsAre("matmul +=")));
}

TEST(TensorParallelOverlap, NothingRunsBesideAReductionWhereWeightGradientsArePutOff) {
    tests::Case divided{.name = "", .tp = 2, .pp = 2, .sequence_parallel = true, .schedule = SplitSchedule::zb_h1};
    const std::vector<std::string> events = events_of_a_step(tests::task_for(small::llama(), divided, Precision::fp64));
    const auto early = beside(events, "reduce_scatter in tp");
    EXPECT_FALSE(early.empty());
    EXPECT_TRUE(not_waited_for_at_once(early).empty());
    EXPECT_TRUE(not_waited_for_at_once(beside(events, "all_gather in tp")).empty());
}

/// Parameters behind three steps, by rank.
std::vector<std::vector<std::byte>> trained(const TrainingTask& task, bool at_once) {
    std::vector<std::vector<std::byte>> bytes(static_cast<std::size_t>(task.layout.sizes.world));
    on_watched_ranks(task, at_once, [&](int rank, RankTrainer& trainer, EventLog&) {
        for (int step = 0; step < 3; ++step) (void)trainer.step(small::tokens_of, 1e-2);
        bytes[static_cast<std::size_t>(rank)] = small::parameter_bytes(trainer);
    });
    return bytes;
}

struct Training {
    std::string name;
    Precision precision = Precision::bf16;
    Fp8Recipe recipe{};
    bool sequence_parallel = true;
    std::int64_t sequence = 16;  ///< with blocks: 256, of which a rank's rows are cast before they are gathered
};

class TensorParallelOverlapBits : public testing::TestWithParam<Training> {};

TEST_P(TensorParallelOverlapBits, AreThoseOfWaitingAtOnce) {
    const Training& training = GetParam();
    ModelSpec model = small::llama();
    model.layers = 2;
    model.hidden = 64;
    model.ffn = 128;
    model.heads = model.kv_heads = 4;
    model.head_dim = 16;
    model.max_positions = training.sequence;
    TrainingTask task = tests::task_for(model, {.name = "", .tp = 2, .sequence_parallel = training.sequence_parallel}, training.precision,
                                        training.sequence);
    task.training.megatron.fp8_recipe = training.recipe;
    const auto overlapped = trained(task, false);
    EXPECT_EQ(overlapped, trained(task, true));
    EXPECT_FALSE(overlapped.front().empty());
}

std::vector<Training> trainings() {
    std::vector<Training> all{
        {.name = "bf16"}, {.name = "bf16_all_reduced", .sequence_parallel = false}, {.name = "fp32", .precision = Precision::fp32}};
    const auto add = [&](std::string name, Fp8Recipe recipe, std::int64_t sequence) {
        all.push_back({.name = std::move(name), .precision = Precision::fp8, .recipe = recipe, .sequence = sequence});
    };
    add("fp8_current", Fp8Recipe::tensorwise, 16);
    add("fp8_delayed", Fp8Recipe::delayed, 16);
    add("fp8_blockwise_of_few_rows", Fp8Recipe::blockwise, 16);
    add("fp8_blockwise", Fp8Recipe::blockwise, 256);
    add("mxfp8", Fp8Recipe::mxfp8, 256);
    return all;
}

INSTANTIATE_TEST_SUITE_P(Precisions, TensorParallelOverlapBits, testing::ValuesIn(trainings()),
                         [](const auto& test) { return test.param.name; });

TEST(TensorParallelOverlap, ARankThatFailsBesideAReductionEndsTheOthers) {
    const TrainingTask task = small::task(small::llama(), {.tp = 2, .sequence_parallel = true});
    std::string heard;
    const auto begin = std::chrono::steady_clock::now();
    try {
        on_watched_ranks(task, false, [&](int rank, RankTrainer& trainer, EventLog& log) {
            if (rank == 1) {
                log.after_op = [&log] {
                    const auto& events = log.events;
                    if (events.size() > 1 && events[events.size() - 2] == "begin reduce_scatter in tp" &&
                        events.back().starts_with("matmul"))
                        throw std::runtime_error("the card is gone");
                };
            }
            try {
                for (;;) (void)trainer.step(small::tokens_of, 1e-2);
            } catch (const CommunicationError& error) {
                if (rank == 0) heard = error.what();
                throw;
            }
        });
        FAIL() << "nothing was thrown";
    } catch (const runtime::RankFailure& failure) {
        EXPECT_EQ(failure.rank(), 1);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    EXPECT_THAT(heard, HasSubstr("rank 1 failed while reduce_scatter in group tp (ranks 0, 1) was running"));
}

}  // namespace
}  // namespace mgplan::model::tp_overlap_test
