#include "plan/layout/layout_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/layout/layout_switches.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::layout_words_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LayoutWords, ReadWhatASummaryPrints) {
    const LayoutRequest read = parse_layout_words("tp2 cp4 ep8 etp1 pp16 vpp3 mbs5 sp all_gather selective");
    EXPECT_EQ(read.tp, 2);
    EXPECT_EQ(read.cp, 4);
    EXPECT_EQ(read.ep, 8);
    EXPECT_EQ(read.etp, 1);
    EXPECT_EQ(read.pp, 16);
    EXPECT_EQ(read.vpp, 3);
    EXPECT_EQ(read.micro_batch, 5);
    EXPECT_TRUE(read.sequence_parallel);
    EXPECT_EQ(read.cp_comm_type, CpCommType::all_gather);
    EXPECT_EQ(read.recompute, Recompute::selective);
    EXPECT_FALSE(parse_layout_words("tp2 cp1 ep1 etp2 pp1 vpp1 mbs1 p2p none").sequence_parallel) << "a whole summary would say sp";
}

TEST(LayoutWords, LeaveOutWhatIsUsual) {
    const LayoutRequest read = parse_layout_words(" pp=4,tp=8  full");
    EXPECT_EQ(read.tp, 8);
    EXPECT_EQ(read.pp, 4);
    EXPECT_EQ(read.vpp, 1);
    EXPECT_EQ(read.etp, std::nullopt);
    EXPECT_EQ(read.micro_batch, 1);
    EXPECT_TRUE(read.sequence_parallel);
    EXPECT_EQ(read.recompute, Recompute::full);
    EXPECT_FALSE(parse_layout_words("pp2").sequence_parallel);
    EXPECT_EQ(parse_layout_words("tp2").switches, nullptr);
    const LayoutRequest switched = parse_layout_words("ep8 deepep moe-overlap bf16-moments");
    ASSERT_NE(switched.switches, nullptr);
    EXPECT_EQ(switch_words(*switched.switches), (std::vector<std::string>{"deepep", "moe-overlap", "bf16-moments"}));
    const LayoutRequest modules = parse_layout_words("ep8 p2p selective layernorm+moe_act graphs=attn+moe_router deepep");
    EXPECT_EQ(modules.recompute_modules, (EnumSet<RecomputeModule>{RecomputeModule::layernorm, RecomputeModule::moe_act}));
    EXPECT_EQ(modules.cuda_graphs, (EnumSet<CudaGraphScope>{CudaGraphScope::attn, CudaGraphScope::moe_router}));
    EXPECT_EQ(parse_layout_words("moe_act").recompute, Recompute::selective);
    const LayoutRequest block = parse_layout_words("pp2 block4");
    EXPECT_TRUE(block.recompute == Recompute::full && block.recompute_method == RecomputeMethod::block && block.recompute_num_layers == 4);
    const LayoutRequest of_a_table = parse_layout_words("tp2+sp pp2 sel");
    EXPECT_TRUE(of_a_table.tp == 2 && of_a_table.sequence_parallel);
    EXPECT_EQ(of_a_table.recompute, Recompute::selective);
    EXPECT_FALSE(parse_layout_words("tp2 nosp").sequence_parallel);
    const LayoutRequest of_cells = parse_layout_words("tp2+sp ep8,pp2x3 norm+act ov:tp,moe bf16:g,m graphs=none");
    EXPECT_EQ(of_cells.pp, 2);
    EXPECT_EQ(of_cells.vpp, 3);
    EXPECT_EQ(of_cells.recompute_modules, (EnumSet<RecomputeModule>{RecomputeModule::layernorm, RecomputeModule::moe_act}));
    ASSERT_NE(of_cells.switches, nullptr);
    for (const char* sharding : {"fsdp", "hsdp:4", "zero2", "ddp"})
        EXPECT_EQ(switch_words(*parse_layout_words(std::string("tp2 ") + sharding).switches), std::vector<std::string>{sharding});
    EXPECT_EQ(switch_words(*of_cells.switches), (std::vector<std::string>{"tp-overlap", "moe-overlap", "bf16-grads", "bf16-moments"}));
    const LayoutRequest one = parse_layout_words("ov:tp,pp2 blk4");
    EXPECT_EQ(one.pp, 2);
    EXPECT_EQ(switch_words(*one.switches), (std::vector<std::string>{"tp-overlap"}));
    EXPECT_EQ(one.recompute_num_layers, 4);
}

TEST(LayoutWords, ReadTheCellsOfARow) {
    const LayoutInWords row = parse_layout_words("4-sp 2ag ep8 dp3 interleaved - tp-dp-pp blk2");
    EXPECT_TRUE(row.tp == 4 && row.says_sequence_parallel && !row.sequence_parallel);
    EXPECT_TRUE(row.cp == 2 && row.cp_comm_type == CpCommType::all_gather);
    EXPECT_EQ(row.dp, 3);
    EXPECT_EQ(row.runs, ScheduleKind::interleaved);
    EXPECT_EQ(row.order_cell, "tp-dp-pp");
    EXPECT_TRUE(row.says_block);
    EXPECT_EQ(row.switches, nullptr);
    EXPECT_TRUE(parse_layout_words("tp=2+sp cp=4a2a+p2p").cp_comm_type == CpCommType::a2a_p2p);
    // A cell names the exchange beside its size; only a whole summary, in a word of its own, says all of sequence parallelism.
    const LayoutInWords open = parse_layout_words("tp2 cp2a2a full");
    EXPECT_TRUE(open.sequence_parallel && !open.says_sequence_parallel && !open.says_block);
    EXPECT_TRUE(parse_layout_words("tp2 cp2 a2a").says_sequence_parallel);
}

TEST(LayoutWords, NameEveryWordThatIsNone) {
    const auto problems = [](std::string_view text) {
        try {
            (void)parse_layout_words(text);
        } catch (const ConfigError& error) {
            return error.problems();
        }
        return std::vector<std::string>{};
    };
    EXPECT_THAT(problems("tp2 dp4 pp0 tp4 vpp"), ElementsAre(HasSubstr("pp = 0 is not between 1 and"), HasSubstr("tp stands twice"),
                                                             HasSubstr("'vpp' is no part of a layout")));
    EXPECT_THAT(problems("tp99999999999999999999"), ElementsAre(HasSubstr("is no part of a layout")));
    EXPECT_THAT(problems("full layernorm tp1"), ElementsAre(HasSubstr("layernorm is selective recompute, and full stands there too")));
    EXPECT_THAT(problems("layernorm full tp1"), ElementsAre(HasSubstr("layernorm is selective recompute, and full stands there too")));
    EXPECT_THAT(problems("graphs=attn+foo"), ElementsAre(HasSubstr("graphs=attn+foo: no scopes of CUDA graphs; join some of attn, mlp")));
    EXPECT_THAT(problems("block4 moe_act"), ElementsAre(HasSubstr("block4 and moe_act exclude each other")));
    EXPECT_THAT(problems(" , "), ElementsAre(HasSubstr("a layout without words")));
}

}  // namespace
}  // namespace mgplan::layout_words_test
