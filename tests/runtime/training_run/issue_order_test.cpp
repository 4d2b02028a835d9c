// All ranks issue what they share in one order.
#include "runtime/training_run/issue_order.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/small_training.hpp"

namespace mgplan::runtime::issue_order_test {
namespace {

TEST(IssueOrder, IsTheSameOnAllRanksOfTheLayoutsThatThereAre) {
    ModelSpec mixture = tests::small_llama();
    mixture.moe.emplace();
    mixture.moe->experts = 4;
    mixture.moe->top_k = 2;
    mixture.moe->expert_ffn = 24;
    mixture.moe_layers.assign(static_cast<std::size_t>(mixture.layers), true);
    for (const ModelSpec& model : {tests::small_gpt(), tests::small_llama(), mixture}) {
        for (const auto& layout :
             {tests::Case{.name = "", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true}, tests::Case{.name = "", .cp = 2, .pp = 4},
              tests::Case{.name = "", .pp = 2, .vpp = 2, .dp = 2, .ep = model.moe ? 2 : 1}}) {
            EXPECT_NO_THROW(check_issue_order(tests::task_for(model, layout, Precision::bf16)));
        }
    }
}

TEST(IssueOrder, NamesTheRanksAndTheFirstOperationThatDiffer) {
    const IssuedOps first{0, 0, {{"tp", "all_gather"}, {"tp-pp", "all_reduce"}, {"embedding", "all_reduce"}}};
    IssuedOps same_stage = first;
    same_stage.rank = 1;
    const std::vector<std::string> across{"tp-pp", "embedding"};
    EXPECT_EQ(order_disagreement({first, same_stage}, across), "");
    std::swap(same_stage.ops[0], same_stage.ops[1]);
    EXPECT_EQ(
        order_disagreement({first, same_stage}, across),
        "ranks 0 and 1 issue operations of groups that they share in different orders: as number 1 0 issues all_gather in group tp, 1 "
        "all_reduce in group tp-pp");
    // Another stage has a tp group of its own, and the middle one no embedding.
    const IssuedOps middle{2, 1, {{"tp-pp", "all_reduce"}, {"tp", "all_gather"}}};
    EXPECT_EQ(order_disagreement({first, middle}, across), "");
    const IssuedOps last{4, 2, {{"embedding", "all_reduce"}, {"tp-pp", "all_reduce"}}};
    EXPECT_THAT(order_disagreement({first, middle, last}, across), testing::HasSubstr("ranks 0 and 4"));
    const IssuedOps shorter{6, 2, {{"tp-pp", "all_reduce"}}};
    EXPECT_THAT(order_disagreement({last, shorter}, across), testing::HasSubstr("as number 1 4 issues all_reduce in group embedding"));
}

}  // namespace
}  // namespace mgplan::runtime::issue_order_test
