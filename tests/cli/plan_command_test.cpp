// `mgplan plan`: its options do what they say, its JSON holds together.

#include <limits>
#include <set>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "formats/megatron/bridge_recipes.hpp"
#include "plan/text/text.hpp"
#include "planned.hpp"
#include "runtime/sanitizers.hpp"

namespace mgplan::cli::testing::plan_command_test {
namespace {

using planned::kSmall, planned::plan, planned::rejected;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSubsetOf;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

/// A field of every plan's layout.
template <class Value>
std::vector<Value> each(const Json& report, const char* field) {
    std::vector<Value> values;
    for (const auto& entry : report["plans"]) values.push_back(entry["layout"][field].get<Value>());
    return values;
}

std::set<std::int64_t> distinct(const Json& report, const char* field) {
    const auto values = each<std::int64_t>(report, field);
    return {values.begin(), values.end()};
}

/// Seconds of the search differ from run to run, nothing else.
Json without_seconds(Json report) {
    report["search"].erase("seconds");
    report["search"].erase("evaluate_seconds");
    report["search"].erase("threads");
    return report;
}

TEST(PlanCommand, DecidesFitWithItsCudaGraphs) {
    const std::string words =
        std::string(kSmall) + " --tp 2 --cp 1 --pp 4 --micro-batch 1 --recompute none --sequence-parallel on --search plain";
    const Json eager = plan(words + " --vpp 1");
    ASSERT_THAT(eager["plans"], Not(IsEmpty()));
    const Json graphed = plan(words + " --vpp 1 --cuda-graphs layer");
    ASSERT_THAT(graphed["plans"], Not(IsEmpty()));
    const auto peak = [](const Json& report) { return report["plans"][0]["predicted"]["memory"]["peak_bytes"].get<std::int64_t>(); };
    EXPECT_EQ(graphed["plans"][0]["layout"]["cuda_graphs"].dump(), R"(["layer"])");
    EXPECT_GT(peak(graphed), peak(eager));
    // A limit between the two.
    const std::string limit = fmt::format(" --vpp 1 --max-memory {}", peak(graphed) - 1);
    EXPECT_EQ(say(words + limit).code, kDone);
    EXPECT_EQ(say(words + limit + " --cuda-graphs layer").code, kNothingFits);
    // Graphs of single layers leave no room for full recompute.
    const Json all = plan(std::string(kSmall) + " --cuda-graphs attn --search plain");
    EXPECT_GT(rejected(all, "cuda_graphs_hold_the_recompute"), 0);
    EXPECT_THAT(each<std::string>(all, "recompute"), Not(Contains("full")));
}

TEST(PlanCommand, ListsOnlyWhatFitsWithTheAllocatorReplayed) {
    const std::string words =
        std::string(kSmall) +
        " --engine megatron --tp 2 --cp 1 --pp 1 --recompute none --search plain --sequence-parallel on --micro-batch ";
    const Json all = plan(words + "1,2");
    // Holes of more than the thirty-second that the search assumes.
    const auto holes = [](const Json& entry) {
        const Json& memory = entry["predicted"]["memory"];
        return static_cast<double>(memory["breakdown"]["fragmentation"].get<std::int64_t>()) / memory["framework_bytes"].get<double>();
    };
    ASSERT_THAT(all["plans"], SizeIs(2));
    const Json& larger = all["plans"][0];
    ASSERT_GT(holes(larger), 0.035);
    const auto peak = [](const Json& entry) { return entry["predicted"]["memory"]["peak_bytes"].get<std::int64_t>(); };
    ASSERT_GT(peak(larger), peak(all["plans"][1]));
    // A byte short, segments without a tensor are given back; of a fifth of the holes less there are not enough of these.
    EXPECT_THAT(plan(words + "1,2" + fmt::format(" --max-memory {}", peak(larger) - 1))["plans"], SizeIs(2));
    const auto fragmentation = larger["predicted"]["memory"]["breakdown"]["fragmentation"].get<std::int64_t>();
    const std::string limit = fmt::format(" --max-memory {}", peak(larger) - fragmentation / 5);
    const Json fewer = plan(words + "1,2" + limit);
    ASSERT_THAT(fewer["plans"], SizeIs(1));
    EXPECT_EQ(fewer["plans"][0]["layout"], all["plans"][1]["layout"]);
    EXPECT_EQ(rejected(fewer, "fits_in_memory_when_replayed"), 1);
    EXPECT_EQ(fewer["search"]["feasible"], 1);
    const Json& dropped = fewer["search"]["too_large"][0];
    EXPECT_EQ(dropped["rule"], "fits_in_memory_when_replayed");
    EXPECT_EQ(dropped["largest_term"], "fragmentation");
    const auto missing = dropped["nearest"]["missing_bytes"].get<std::int64_t>();
    EXPECT_GT(missing, 0);
    EXPECT_LT(missing, fragmentation);
    EXPECT_EQ(dropped["nearest"]["layout"], larger["layout"]);
    // Where nothing else fits it is the nearest miss.
    const Said nothing = say(words + std::to_string(larger["layout"]["micro_batch"].get<int>()) + limit + " --format json");
    EXPECT_EQ(nothing.code, kNothingFits);
    EXPECT_EQ(Json::parse(nothing.out)["nearest"][0]["missing_bytes"], missing);
    EXPECT_THAT(say(words + "1,2" + limit + " --wide").out, HasSubstr("not with the allocator replayed"));
}

TEST(PlanCommand, IsTheDefaultCommand) {
    EXPECT_EQ(without_seconds(plan(kSmall)), without_seconds(plan(std::string("plan ") + kSmall)));
}

TEST(PlanCommand, CountsAddUp) {
    for (const char* words : {kSmall, "--world 24 --model mixtral-8x7b", "--world 12 --model tiny-moe", "--world 100 --model llama2-13b"}) {
        const Json report = plan(std::string(words) + " --search plain --exhaustive");
        const Json& search = report["search"];
        std::int64_t turned_away = 0;
        for (const auto& [reason, count] : search["rejected"].items()) turned_away += count.get<std::int64_t>();
        EXPECT_EQ(search["candidates"].get<std::int64_t>(), search["feasible"].get<std::int64_t>() + turned_away) << words;
        EXPECT_EQ(search["legal"].get<std::int64_t>(), search["feasible"].get<std::int64_t>() + rejected(report, "fits_in_memory") +
                                                           rejected(report, "fits_in_memory_at_p99") +
                                                           rejected(report, "fits_in_memory_when_replayed"))
            << words;
        EXPECT_GE(search["evaluated"].get<std::int64_t>(), search["feasible"].get<std::int64_t>()) << words;
        EXPECT_TRUE(search["candidates"].is_number_integer());
    }
}

TEST(PlanCommand, SaysWhetherAnyOtherLayoutCouldBeFaster) {
    const Json proven = plan(std::string(kSmall) + " --top 3")["search"];
    EXPECT_EQ(proven["fastest_is_proven"], true);
    EXPECT_GE(proven["replayed"], 3);
    EXPECT_TRUE(plan(std::string(kSmall) + " --objective memory")["search"]["fastest_is_proven"].is_null());
    EXPECT_THAT(say(kSmall).out, Not(HasSubstr("event by event")));
}

TEST(PlanCommand, SaysTheSameWhateverTheThreads) {
    const auto once = without_seconds(plan("--world 24 --model mixtral-8x7b --threads 1"));
    EXPECT_EQ(once, without_seconds(plan("--world 24 --model mixtral-8x7b --threads 1")));
    EXPECT_EQ(once, without_seconds(plan("--world 24 --model mixtral-8x7b --threads 2")));
    EXPECT_EQ(once, without_seconds(plan("--world 24 --model mixtral-8x7b --threads 5")));
}

TEST(PlanCommand, RanksByTheObjective) {
    const Json fast = plan(std::string(kSmall) + " --top 50 --engine mgplan");
    const Json small = plan(std::string(kSmall) + " --top 50 --objective memory --engine mgplan");
    const auto sorted = [](const Json& report, auto value) {
        for (std::size_t i = 1; i < report["plans"].size(); ++i) {
            if (value(report["plans"][i]) < value(report["plans"][i - 1])) return false;
        }
        return true;
    };
    const auto seconds = [](const Json& entry) { return entry["predicted"]["iteration_seconds"].get<double>(); };
    const auto bytes = [](const Json& entry) { return entry["predicted"]["memory"]["peak_bytes"].get<std::int64_t>(); };
    const double fastest = fast["search"]["fastest_seconds"];
    EXPECT_TRUE(sorted(fast, seconds));
    EXPECT_TRUE(sorted(small, bytes));
    EXPECT_TRUE(small["search"]["fastest_seconds"].is_null());
    EXPECT_EQ(fastest, seconds(fast["plans"][0]));
    EXPECT_LE(bytes(small["plans"][0]), bytes(fast["plans"][0]));
}

TEST(PlanCommand, ShowsTheFastestFirstAndNoRowThatAFasterOneDominates) {
    for (const std::string words : {"--world 8 --model llama3-8b", "--world 16 --model qwen2.5-7b"}) {
        const Json report = plan(words + " --top 100");
        const auto seconds = [&](const Json& entry) { return entry["predicted"]["iteration_seconds"].get<double>(); };
        EXPECT_EQ(seconds(report["plans"][0]), report["search"]["fastest_seconds"]);
        EXPECT_EQ(report["plans"][0]["why"][0], "fastest");
        for (std::size_t i = 1; i < report["plans"].size(); ++i)
            EXPECT_GE(seconds(report["plans"][i]), seconds(report["plans"][i - 1])) << i;
        // However many are asked for.
        EXPECT_EQ(plan(words + " --top 1")["plans"][0]["layout"], report["plans"][0]["layout"]);
        // The rows of a table: each has a reason.
        const std::string table = say(words).out;
        EXPECT_THAT(table, ContainsRegex(" why\n[- ]+\n *1 .* (recommended, ?|recommended,\n *)?fastest"));
        std::size_t rows = 0;
        for (const std::string& line : split(table, '\n')) {
            const auto begin = std::min(line.find_first_not_of(' '), line.size());
            const auto rank = parse_integer(split(line.substr(begin) + " ", ' ').front());
            if (!rank) continue;
            ++rows;
            ASSERT_LE(*rank, 100);
            EXPECT_THAT(line, ContainsRegex("[.0-9] +(recommended|fastest|steadiest|most-free-memory|simplest|no-pipeline)"));
        }
        EXPECT_GT(rows, 1U) << table;
        EXPECT_LE(rows, 5U) << table;
    }
}

TEST(PlanCommand, KeepsWhatACommandSaysAndTheSearchDoesNotChoose) {
    const TempFile file(
        "job.sh",
        "ARGS=(--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096\n"
        "--micro-batch-size 2 --global-batch-size 128 --swiglu --bf16 --vocab-size 32000 --tensor-model-parallel-size 2\n"
        "--attention-dropout 0 --hidden-dropout 0 --recompute-granularity selective --recompute-modules mlp\n"
        "--cuda-graph-impl transformer_engine --cuda-graph-scope attn --use-tp-pp-dp-mapping)\n");
    const std::string words = "--world 16 --model " + file.path();
    const Said said = say(words + " --recompute selective --search plain --format json");
    ASSERT_EQ(said.code, kDone) << said.err;
    const Json report = Json::parse(said.out);
    for (const Json& each : report["plans"]) {
        EXPECT_EQ(each["layout"]["cuda_graphs"].dump(), R"(["attn"])");
        EXPECT_EQ(each["layout"]["recompute_modules"].dump(), R"(["mlp"])");
        EXPECT_EQ(each["layout"]["order"], "tp-cp-ep-pp-dp");
    }
    const char* chosen = R"(["--micro-batch-size","--tensor-model-parallel-size","--recompute-granularity"])";
    EXPECT_EQ(report["searched"].dump(), chosen);
    EXPECT_THAT(report["used"].dump(), HasSubstr("--cuda-graph-scope"));
    EXPECT_THAT(said.err, HasSubstr("the search chooses, whatever the command says, --micro-batch-size --tensor-model-parallel-size "));
    // An option says otherwise.
    EXPECT_EQ(plan(words + " --cuda-graphs none")["plans"][0]["layout"]["cuda_graphs"].dump(), "[]");
}

TEST(PlanCommand, PrintsAsManyPlansAsAsked) {
    for (const int top : {1, 3, 25}) {
        const Json report = plan(fmt::format("{} --top {}", kSmall, top));
        EXPECT_THAT(report["plans"], SizeIs(top));
        EXPECT_EQ(report["plans"].back()["rank"], top);
    }
    EXPECT_THAT(plan(kSmall)["plans"], SizeIs(10));
    const Json few = plan("--world 128 --model glm-4.5-air --top 2");
    ASSERT_THAT(few["plans"], SizeIs(3)) << "the recommended plan is behind the second, and listed";
    EXPECT_TRUE(few["plans"][2]["recommended"]);
    EXPECT_THAT(say("--world 128 --model glm-4.5-air").out,
                ContainsRegex(fmt::format("\n *{} [^\n]*recommended", few["plans"][2]["rank"].get<int>())));
    EXPECT_LT(few["plans"][2]["predicted"]["adverse_seconds"], few["plans"][0]["predicted"]["adverse_seconds"]);
    TempFile file("picked.json");
    EXPECT_THAT(plan(fmt::format("{} --top 2 --pick 9 --save-plan {}", kSmall, file.path()))["plans"], SizeIs(2));
}

TEST(PlanCommand, PinsAndRestrictsEverySize) {
    EXPECT_THAT(distinct(plan(std::string(kSmall) + " --tp 1,2 --top 25"), "tp"), IsSubsetOf({1, 2}));
    EXPECT_THAT(distinct(plan(std::string(kSmall) + " --pp 4 --top 25"), "pp"), ElementsAre(4));
    EXPECT_THAT(distinct(plan(std::string(kSmall) + " --cp 2 --top 25"), "cp"), ElementsAre(2));
    const Json interleaved = plan(std::string(kSmall) + " --vpp 2 --top 25");
    EXPECT_THAT(distinct(interleaved, "vpp"), ElementsAre(2));
    EXPECT_THAT(distinct(interleaved, "pp"), Not(Contains(1)));
    EXPECT_THAT(distinct(plan(std::string(kSmall) + " --micro-batch 1,4 --pp 2 --recompute none --top 25"), "micro_batch"),
                ElementsAre(1, 4));
    const Json experts = plan("--world 16 --model mixtral-8x7b --ep 4 --etp 2 --top 25");
    EXPECT_THAT(distinct(experts, "ep"), ElementsAre(4));
    EXPECT_THAT(distinct(experts, "etp"), ElementsAre(2));
    for (const auto& entry : experts["plans"]) {
        const auto& layout = entry["layout"];
        EXPECT_EQ(layout["edp"].get<std::int64_t>() * 4 * 2 * layout["pp"].get<std::int64_t>(), 16);
    }
}

TEST(PlanCommand, RestrictsHowALayoutComputes) {
    EXPECT_THAT(each<std::string>(plan(std::string(kSmall) + " --recompute full --top 50"), "recompute"), Each("full"));
    const Json block = plan(std::string(kSmall) + " --recompute full --recompute-method block --recompute-num-layers 3 --top 5");
    EXPECT_THAT(each<std::string>(block, "recompute_method"), Each("block"));
    EXPECT_THAT(distinct(block, "recompute_num_layers"), ElementsAre(3));
    const Json modules = plan(std::string(kSmall) + " --recompute selective --recompute-modules mlp,layernorm --top 5");
    for (const auto& list : each<std::vector<std::string>>(modules, "recompute_modules"))
        EXPECT_THAT(list, ElementsAre("mlp", "layernorm"));
    EXPECT_THAT(each<bool>(plan(std::string(kSmall) + " --tp 2 --sequence-parallel off --top 50"), "sequence_parallel"), Each(false));
    EXPECT_THAT(each<bool>(plan(std::string(kSmall) + " --tp 2 --sequence-parallel on --top 50"), "sequence_parallel"), Each(true));
    EXPECT_THAT(each<std::string>(plan(std::string(kSmall) + " --cp 2 --cp-comm-type all_gather --top 50"), "cp_comm_type"),
                Each("all_gather"));
    EXPECT_THAT(distinct(plan(std::string(kSmall) + " --pp 4 --vpp 2 --group-size 8 --top 5"), "group_size"), ElementsAre(8));
    EXPECT_THAT(each<std::string>(plan(std::string(kSmall) + " --order tp-cp-ep-pp-dp --top 5"), "order"), Each("tp-cp-ep-pp-dp"));
    EXPECT_THAT(each<std::string>(plan(std::string(kSmall) + " --engine megatron --top 5"), "engine"), Each("megatron"));
}

TEST(PlanCommand, SaysWhichAxesAShortOrderPins) {
    const Said said = say("--world 16 --model llama3-8b --order tp-dp --top 1");
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_THAT(said.err, HasSubstr("--order tp-dp leaves cp, pp out: layouts with more than one rank along them are not searched"));
    EXPECT_THAT(say("--world 16 --model llama3-8b --order tp-cp-dp-pp --top 1").err, Not(HasSubstr("leaves")));
}

TEST(PlanCommand, TakesLayoutStrings) {
    const auto splits = [](const std::string& text, const std::string& pp) {
        const Said said =
            say({"--world", "16", "--model", "llama3-8b", "--pipeline-layout", text, "--pp", pp, "--format", "json", "--top", "100"});
        EXPECT_EQ(said.code, kDone) << said.err;
        std::set<std::string> found;
        const Json report = Json::parse(said.out);
        for (const auto& entry : report["plans"]) found.insert(entry["layout"]["layers_per_chunk"].dump());
        return found;
    };
    // One chunk on each of four ranks, or two on two.
    EXPECT_THAT(splits("Et*7|t*8|t*8|t*9L", "4"), ElementsAre("[[7],[8],[8],[9]]"));
    EXPECT_THAT(splits("Et*7|t*8|t*8|t*9L", "2"), ElementsAre("[[7,8],[8,9]]"));
    EXPECT_THAT(splits("Ett|(tttt|)*6t*6L", "4"), ElementsAre("[[2,4],[4,4],[4,4],[4,6]]"));
    EXPECT_THAT(splits("Et*7|t*8|t*8|t*9L", "2,4"), ::testing::SizeIs(::testing::Ge(1U)));
}

TEST(PlanCommand, CountsIllegalMembersBesideLegalOnes) {
    const Json report = plan(std::string(kSmall) + " --tp 2,3 --micro-batch 1,3");
    EXPECT_EQ(rejected(report, "tp_divides_world"), 1);
    EXPECT_GT(rejected(report, "batch_divides"), 0);
    EXPECT_THAT(distinct(report, "tp"), ElementsAre(2));
}

TEST(PlanCommand, RepeatedListMembersChangeNothing) {
    const auto once = plan(std::string(kSmall) + " --recompute full --cp 2 --cp-comm-type p2p --tp 2 --pp 2 --top 1000 --search plain");
    const auto twice =
        plan(std::string(kSmall) + " --recompute full,full --cp 2,2 --cp-comm-type p2p,p2p --tp 2,2 --pp 2,2 --top 1000 --search plain");
    EXPECT_EQ(without_seconds(once), without_seconds(twice));
}

TEST(PlanCommand, InterleavesTwoRanksOnlyWithOverlappedP2p) {
    EXPECT_THAT(distinct(plan(std::string(kSmall) + " --pp 2 --tp 2 --cp 1 --micro-batch 1 --recompute none --top 100"), "vpp"),
                Contains(2));
    const Json without = plan(std::string(kSmall) + " --pp 2 --tp 2 --cp 1 --no-overlap p2p --micro-batch 1 --recompute none --top 100");
    EXPECT_THAT(distinct(without, "vpp"), ElementsAre(1));
    EXPECT_GT(rejected(without, "interleaving_two_ranks_needs_p2p_overlap"), 0);
}

TEST(PlanCommand, AcceptsExpertSizesOfDenseModelsWithoutEffect) {
    const Json free = plan(kSmall);
    const Json pinned = plan(std::string(kSmall) + " --ep 4 --etp 3");
    EXPECT_EQ(without_seconds(free)["plans"], without_seconds(pinned)["plans"]);
    EXPECT_EQ(without_seconds(free)["search"], without_seconds(pinned)["search"]);
}

TEST(PlanCommand, KeepsTensorParallelInTheDomainUnlessAsked) {
    EXPECT_EQ(rejected(plan(kSmall), "tp_inside_nvlink_domain"), 1);
    const Json asked = plan(std::string(kSmall) + " --tp 16");
    EXPECT_THAT(distinct(asked, "tp"), ElementsAre(16));
    const Json rack = plan("--world 64 --model llama3-8b --cluster gb200-nvl72");
    EXPECT_EQ(rejected(rack, "tp_inside_nvlink_domain"), 0);
}

TEST(PlanCommand, KeepsExpertParallelInTheRackUnlessAsked) {
    const std::string words = "--world 256 --model qwen3-235b-a22b --cluster gb200-nvl72 --tp 1 --cp 1 --pp 1,2 --global-batch 2048";
    const Json inside = plan(words);
    EXPECT_GT(rejected(inside, "ep_inside_nvlink_domain"), 0);
    for (const std::int64_t ep : distinct(inside, "ep")) EXPECT_LE(ep, 64);
    const Json asked = plan(words + " --ep 128");
    EXPECT_EQ(rejected(asked, "ep_inside_nvlink_domain"), 0);
    EXPECT_THAT(distinct(asked, "ep"), ElementsAre(128));
    // On nodes of eight GPUs a large mixture has no such choice.
    EXPECT_EQ(rejected(plan("--world 64 --model mixtral-8x7b --tp 2 --cp 1"), "ep_inside_nvlink_domain"), 0);
}

TEST(PlanCommand, LimitsMemory) {
    const Json all = plan(kSmall);
    const Json tight = plan(std::string(kSmall) + " --max-memory 40GiB --top 100");
    EXPECT_LT(tight["search"]["feasible"], all["search"]["feasible"]);
    EXPECT_EQ(tight["search"]["legal"], all["search"]["legal"]);
    for (const auto& entry : tight["plans"]) {
        EXPECT_LE(entry["predicted"]["memory"]["peak_bytes"].get<std::int64_t>(), std::int64_t{40} << 30);
        EXPECT_EQ(entry["predicted"]["memory"]["limit_bytes"].get<std::int64_t>(), std::int64_t{40} << 30);
    }
}

double best_seconds(const std::string& words) {
    return plan(words + " --top 1")["search"]["fastest_seconds"].get<double>();
}

TEST(PlanCommand, AppliesClusterEditsAndPrecision) {
    const std::string words = "--world 32 --model llama3-70b --tp 8 --pp 4 --vpp 1 --recompute full --micro-batch 1 --search plain";
    const double base = best_seconds(words);
    EXPECT_GT(best_seconds(words + " --cluster dgx-h100,node_network_gbits_per_second=400"), base);
    EXPECT_GT(best_seconds(words + " --cluster dgx-h100,nvlink_gbytes_per_second=100"), base);
    EXPECT_GT(best_seconds(words + " --cluster dgx-h100,gpus_per_node=4,nvlink_domain=4"), base);
    EXPECT_LT(best_seconds(words + " --precision fp8"), base);
    EXPECT_GT(best_seconds("--world 32 --model llama3-8b --precision fp32"), best_seconds("--world 32 --model llama3-8b"));
    const Json cluster = plan(words + " --cluster dgx-h100,memory_gib=141,gpus_per_node=4")["cluster"];
    EXPECT_EQ(cluster["memory_bytes"], std::int64_t{141} << 30);
    EXPECT_EQ(cluster["gpus_per_node"], 4);
    const auto training = plan(words + " --precision fp8 --no-distributed-optimizer --grad-dtype bf16 --max-memory 500GiB")["training"];
    EXPECT_EQ(training["precision"], "fp8");
    EXPECT_EQ(training["distributed_optimizer"], false);
    EXPECT_EQ(training["grad_dtype"], "bf16");
}

TEST(PlanCommand, TakesEachFp8RecipeByItsName) {
    const std::string words =
        "--world 8 --model llama3-8b --tp 2 --pp 1 --cp 1 --micro-batch 1 --top 1 --engine megatron --cluster dgx-b200";
    const auto peak = [&](const std::string& precision) {
        const Json answer = plan(words + " --precision " + precision);
        return std::pair(answer["plans"][0]["predicted"]["memory"]["peak_bytes"].get<std::int64_t>(), answer["training"]);
    };
    const auto [current, training] = peak("fp8-current");
    EXPECT_EQ(training["megatron"]["fp8_recipe"], "tensorwise");  // Megatron-LM's word
    EXPECT_EQ(peak("fp8").second, training);
    EXPECT_EQ(peak("fp8-delayed").second["precision"], "fp8");
    EXPECT_EQ(peak("fp8-blockwise").second["megatron"]["fp8_recipe"], "blockwise");
    // A copy by rows and one by columns, each with its scales, in place of one copy and its transpose.
    EXPECT_GT(peak("mxfp8").first, current);
    EXPECT_THAT(say(words + " --precision mxfp8").out, HasSubstr(" tokens, mxfp8\n"));
    EXPECT_THAT(say(words + " --precision fp8").out, HasSubstr(" tokens, fp8-current\n"));
    const Said refused = say("--world 8 --model llama3-8b --precision mxfp8");
    EXPECT_EQ(refused.code, kBadInput);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("--precision = mxfp8 needs Blackwell's tensor cores"), HasSubstr("compute capability 9.0"),
                                   HasSubstr("use fp8-current")));
}

TEST(PlanCommand, SaysWhatItAssumed) {
    const Json bare = plan(kSmall);
    const auto assumed = bare["assumed"].get<std::vector<std::string>>();
    EXPECT_THAT(assumed, Contains("cluster dgx-h100"));
    EXPECT_THAT(assumed, Contains("global batch of 1,024 sequences (4,194,304 tokens)"));
    const Json full = plan(std::string(kSmall) + " --cluster dgx-h100 --global-batch 512 --seq 4096");
    for (const auto& sentence : full["assumed"].get<std::vector<std::string>>()) {
        EXPECT_THAT(sentence, Not(HasSubstr("batch")));
        EXPECT_THAT(sentence, Not(HasSubstr("dgx")));
    }
    EXPECT_EQ(full["batch"]["global_batch"], 512);
    EXPECT_EQ(bare["batch_source"], "assumed");
    EXPECT_EQ(full["batch_source"], "given");
    // 4 Mi tokens at 4,096, growing linearly from 1,024 GPUs to 16 Mi at 4,096; rounded up so that every dp is possible.
    EXPECT_EQ(plan("--world 2048 --model llama3-8b --tp 1 --pp 1 --cp 1 --recompute none")["batch"]["global_batch"], 2048);
    EXPECT_EQ(plan("--world 100 --model llama3-8b --pp 1 --cp 1")["batch"]["global_batch"], 1200);
}

TEST(PlanCommand, TakesTheModelsPublishedBatch) {
    const std::string job =
        "--world 1024 --model deepseek-v3 --tp 8 --cp 1 --ep 64 --etp 1 --pp 16 --vpp 1 --micro-batch 1 --search plain ";
    const Json published = plan(job + "--recompute full");
    EXPECT_EQ(published["batch"]["global_batch"], 15360) << "arXiv 2412.19437, section 4.2";
    EXPECT_EQ(published["batch_source"], "published");
    EXPECT_EQ(plan(job + "--recompute full --seq 8192")["batch"]["global_batch"], 7680) << "the same tokens";
    EXPECT_THAT(say(job + "--recompute full").out, HasSubstr("\nbatch:   the model's own; the ranking depends on it"));
    EXPECT_THAT(say(std::string(kSmall)).out, HasSubstr("\nbatch:   assumed; the ranking depends on it"));
    EXPECT_THAT(say(std::string(kSmall) + " --global-batch 512").out, Not(HasSubstr("\nbatch:")));
}

TEST(PlanCommand, PlansWorldsThatAreNoPowersOfTwo) {
    for (const int world : {1, 2, 3, 5, 6, 7, 12, 24, 72, 96, 100, 192}) {
        const Said said = say(fmt::format("--world {} --model qwen2.5-0.5b --top 1 --format json", world));
        EXPECT_EQ(said.code, kDone) << world << said.err;
    }
}

TEST(PlanCommand, SavesTheRecommendedPlan) {
    const std::string job = "--world 128 --model glm-4.5-air --top 1 ";
    TempFile recommended("recommended.json"), fastest("fastest.json");
    const Json report = plan(job + "--save-plan " + recommended.path());
    EXPECT_EQ(Json::parse(say({"simulate", recommended.path(), "--format", "json"}).out)["layout"], report["plans"][1]["layout"]);
    ASSERT_EQ(say(job + "--pick 1 --save-plan " + fastest.path()).code, kDone);
    EXPECT_EQ(Json::parse(say({"simulate", fastest.path(), "--format", "json"}).out)["layout"], report["plans"][0]["layout"]);
}

TEST(PlanCommand, ShowsTheSizesOfNvidiasRecipe) {
    const std::string job = "--world 64 --model qwen3-30b-a3b";
    const auto recipe = formats::bridge_recipes().find("qwen3_30b_a3b_pretrain_64gpu_h100_bf16")->settings();
    EXPECT_EQ(recipe.at("model.expert_model_parallel_size"), "16");
    EXPECT_EQ(recipe.at("model.pipeline_model_parallel_size"), "1");
    const std::string table = say(job).out;
    EXPECT_THAT(table, AllOf(ContainsRegex("\n *- 1 +16 1 .*  *like-nvidia-recipe\n"),
                             HasSubstr("\nrecipe: mgplan check --recipe qwen3_30b_a3b_pretrain_64gpu_h100_bf16\n")));
    // The layout that a search of these sizes finds.
    const Json pinned = plan(job + " --tp 1 --cp 1 --ep 16 --etp 1 --pp 1 --top 1")["plans"][0];
    EXPECT_THAT(table, HasSubstr(fmt::format(" {:.3f} ", pinned["predicted"]["iteration_seconds"].get<double>())));
    // Sizes that the command excludes, and a job of another size, have none.
    EXPECT_THAT(say(job + " --pp 2").out, Not(HasSubstr("like-nvidia-recipe")));
    EXPECT_THAT(say(job + " --seq 16k --search plain").out, Not(HasSubstr("recipe: ")));
    EXPECT_THAT(say("--world 48 --model qwen3-30b-a3b --search plain").out, Not(HasSubstr("recipe: ")));
}

TEST(PlanCommand, AdverseConditionsAreStated) {
    const auto worst = [](const std::string& conditions) {
        return plan("--world 16 --model llama3-8b --top 1 --search plain --tp 8 --pp 2 --cp 1 " + conditions)["plans"][0]["predicted"];
    };
    const Json usual = worst("--adverse network=1,host=1"), slow = worst("--adverse network=0.1,host=1");
    EXPECT_EQ(usual["adverse_seconds"], usual["iteration_seconds"]);
    EXPECT_EQ(slow["iteration_seconds"], usual["iteration_seconds"]);
    EXPECT_GT(slow["adverse_seconds"], slow["iteration_seconds"]);
    EXPECT_THAT(
        say("simulate --world 16 --model llama3-8b --tp 2 --pp 4 --global-batch 64").out,
        AllOf(HasSubstr("4 times in 5; worst "), HasSubstr("\n  idle: "), HasSubstr(" pipeline bubble ("), HasSubstr(" unequal stages (")));
    const Said said = say("--world 16 --model llama3-8b --adverse wind=2");
    EXPECT_EQ(said.code, kBadInput);
    EXPECT_THAT(said.err, HasSubstr("--adverse: 'wind=2' is no condition"));
}

TEST(PlanCommand, SavedPlansSimulateToTheSameNumbers) {
    for (const char* words : {kSmall, "--world 24 --model mixtral-8x7b", "--world 96 --model deepseek-v2-lite --order cp-tp-ep-dp-pp",
                              "--world 32 --model llama2-13b --engine megatron --precision fp16 --grad-dtype fp16"}) {
        for (const int pick : {1, 4}) {
            TempFile file("plan.json");
            const Json report = plan(fmt::format("{} --pick {} --save-plan {}", words, pick, file.path()));
            const Said said = say({"simulate", file.path(), "--format", "json"});
            ASSERT_EQ(said.code, kDone) << said.err;
            Json simulated = Json::parse(said.out);
            simulated["predicted"]["memory"].erase("allocator_replay");  // simulate alone lists its figures
            const Json& entry = report["plans"][static_cast<std::size_t>(pick - 1)];
            EXPECT_EQ(simulated["layout"], entry["layout"]) << words;
            EXPECT_EQ(simulated["predicted"], entry["predicted"]) << words;
        }
    }
}

TEST(PlanCommand, WritesEveryFormatToAFile) {
    for (const char* format : {"table", "json", "csv"}) {
        TempFile file("out");
        const std::string words = fmt::format("{} --top 3 --threads 1 --format {}", kSmall, format);
        const Said said = say(words + " --output " + file.path());
        EXPECT_EQ(said.code, kDone);
        EXPECT_EQ(said.out, "");
        EXPECT_THAT(file.text(), HasSubstr("tp"));
    }
    const auto lines = split(say(std::string(kSmall) + " --top 3 --format csv").out, '\n');
    EXPECT_THAT(lines, SizeIs(5));  // the header, three plans, and what follows the last line's end
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(split(lines[i], ',').size(), split(lines[0], ',').size());
}

TEST(PlanCommand, BalancesStagesAndIsNeverWorse) {
    const std::string words = "plan --world 32 --model llama3-8b --pp 8 --tp 1,2 --global-batch 256 --micro-batch 1 --top 8 --format json";
    const Json even = Json::parse(say(words + " --search plain").out), balanced = Json::parse(say(words + " --balance-stages").out);
    const Json usual = Json::parse(say(words).out);
    EXPECT_FALSE(usual.contains("balanced")) << "nobody asked what is gained";
    EXPECT_EQ(usual["plans"][0]["predicted"], balanced["plans"][0]["predicted"]) << "the default search balances too";
    EXPECT_GE(balanced["balanced"]["tried"], 10);
    EXPECT_GT(balanced["balanced"]["faster"], 0);
    const Json& first = balanced["plans"][0];
    EXPECT_LT(first["predicted"]["iteration_seconds"], even["plans"][0]["predicted"]["iteration_seconds"]);
    EXPECT_GT(first["balanced"]["gain"], 0);
    EXPECT_GT(first["balanced"]["even_iteration_seconds"], first["predicted"]["iteration_seconds"]);
    EXPECT_FALSE(first["layout"]["pipeline_layout"].is_null());
    for (const Json& plan : balanced["plans"])
        EXPECT_LE(plan["predicted"]["memory"]["peak_bytes"], plan["predicted"]["memory"]["limit_bytes"]);
    const TempFile file("balanced_plan.json");
    const Said said = say(
        "plan --world 32 --model llama3-8b --pp 8 --tp 1,2 --global-batch 256 --micro-batch 1 --balance-stages --save-plan " + file.path());
    EXPECT_THAT(said.out, HasSubstr(" layouts with pp > 1 tried, "));
    EXPECT_THAT(said.out, HasSubstr("faster with --pipeline-layout 'Et"));
    const Json again = Json::parse(say("simulate " + file.path() + " --format json").out);
    EXPECT_EQ(again["predicted"]["iteration_seconds"], first["predicted"]["iteration_seconds"]);
    EXPECT_EQ(again["layout"]["pipeline_layout"], first["layout"]["pipeline_layout"]);
    expect_refused("plan --world 32 --model llama3-8b --pp 4 --balance-stages --pipeline-layout Et*8|t*8|t*8|t*8L",
                   {"--balance-stages looks for a pipeline layout and --pipeline-layout gives one"});
}

TEST(PlanCommand, ReadsFiles) {
    TempFile config("config.json",
                    R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"num_hidden_layers":16,"hidden_size":2048,)"
                    R"("intermediate_size":8192,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,)"
                    R"("max_position_embeddings":131072,"hidden_act":"silu","tie_word_embeddings":true})");
    const Json hugging_face = plan("--world 12 --top 3 --model " + config.path());
    EXPECT_THAT(hugging_face["plans"], SizeIs(3));
    EXPECT_EQ(hugging_face["model"]["layers"], Json::parse(R"([{"kind": "attention+mlp", "count": 16}])"));
    EXPECT_EQ(hugging_face["batch"]["sequence"], 4096);

    TempFile flags(
        "flags.args",
        "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 8192 --seq-length 2048\n"
        "--max-position-embeddings 2048 --padded-vocab-size 51200 --vocab-size 51200 --micro-batch-size 2 --global-batch-size 96\n"
        "--tensor-model-parallel-size 2 --bf16\n");
    const Json megatron = plan("--world 12 --top 3 --model " + flags.path());
    EXPECT_THAT(megatron["plans"], SizeIs(3));
    EXPECT_EQ(megatron["model"]["layers"][0]["count"], 24);
    EXPECT_EQ(megatron["batch"]["global_batch"], 96);
    const Said simulated = say({"simulate", "--megatron-args", flags.path(), "--world", "12", "--format", "json"});
    EXPECT_EQ(simulated.code, kDone) << simulated.err;
    EXPECT_EQ(Json::parse(simulated.out)["layout"]["tp"], 2);
    EXPECT_EQ(Json::parse(simulated.out)["layout"]["micro_batch"], 2);
    EXPECT_EQ(Json::parse(simulated.out)["layout"]["engine"], "megatron");
}

class PlannedAtScale : public ::testing::TestWithParam<const char*> {};

TEST_P(PlannedAtScale, FindsLayoutsThatUseTheWholeWorld) {
    const Json report = plan(std::string(GetParam()) + " --top 3");
    ASSERT_THAT(report["plans"].size(), AllOf(Ge(3U), Le(4U))) << "the recommended plan may be behind them";
    for (const auto& entry : report["plans"]) {
        const auto& l = entry["layout"];
        EXPECT_EQ(l["tp"].get<std::int64_t>() * l["cp"].get<std::int64_t>() * l["dp"].get<std::int64_t>() * l["pp"].get<std::int64_t>(),
                  report["world"].get<std::int64_t>());
        EXPECT_EQ(l["etp"].get<std::int64_t>() * l["ep"].get<std::int64_t>() * l["edp"].get<std::int64_t>() * l["pp"].get<std::int64_t>(),
                  report["world"].get<std::int64_t>());
        std::int64_t layers = 0;
        for (const auto& rank : l["layers_per_chunk"]) {
            for (const auto& chunk : rank) layers += chunk.get<std::int64_t>();
        }
        std::int64_t by_kind = 0;
        for (const auto& kind : report["model"]["layers"]) by_kind += kind["count"].get<std::int64_t>();
        EXPECT_EQ(layers, by_kind);
        const auto& memory = entry["predicted"]["memory"];
        std::int64_t sum = 0;
        for (const auto& [name, bytes] : memory["breakdown"].items()) sum += bytes.get<std::int64_t>();
        EXPECT_EQ(sum, memory["peak_bytes"].get<std::int64_t>());
        EXPECT_LE(memory["peak_bytes"], memory["limit_bytes"]);
    }
}

/// Under a sanitizer without the largest, which take most of the time with the code of the others.
std::vector<const char*> jobs_in_time() {
    std::vector<const char*> jobs{"--world 16 --model llama3-8b", "--world 1024 --model llama3.1-405b", "--world 64 --model mixtral-8x7b"};
#ifndef MGPLAN_ADDRESS_SANITIZER
    jobs.insert(jobs.end(), {"--world 16384 --model llama3.1-405b", "--world 1024 --model deepseek-v3 --recompute full,none",
                             "--world 256 --model qwen3-235b-a22b --recompute full"});
#endif
    return jobs;
}

INSTANTIATE_TEST_SUITE_P(PlanCommand, PlannedAtScale, ::testing::ValuesIn(jobs_in_time()));

}  // namespace
}  // namespace mgplan::cli::testing::plan_command_test
