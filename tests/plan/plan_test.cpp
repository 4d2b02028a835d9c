#include "plan/plan.hpp"

#include <cmath>
#include <random>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <nlohmann/json.hpp>

#include "plan/json/cluster_json.hpp"
#include "plan/json/training_json.hpp"
#include "plan/schedule/schedule.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::plan_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

ModelSpec small_model(std::int64_t layers) {
    ModelSpec model = tests::llama_of(
        "small",
        {.layers = layers, .hidden = 64, .ffn = 128, .heads = 8, .kv_heads = 4, .head_dim = 8, .vocab = 1000, .max_positions = 2048});
    model.source = "made up for tests";
    return model;
}

/// 16 GPUs: tp 2, pp 2, vpp 2, dp 4, on 8 layers.
Plan example() {
    Plan plan;
    plan.model = small_model(8);
    plan.cluster = load_cluster("dgx-h100");
    plan.batch = {64, 1024};
    plan.layout.sizes = {.world = 16, .tp = 2, .cp = 1, .ep = 1, .etp = 2, .pp = 2, .order = {}, .optimizer_instances = 1};
    plan.layout.vpp = 2;
    plan.layout.group_size = 2;
    plan.layout.micro_batch = 2;
    plan.layout.num_microbatches = 8;
    plan.layout.sequence_parallel = true;
    plan.layout.recompute = Recompute::selective;
    plan.layout.recompute_modules = {RecomputeModule::core_attn};
    StageSplitRequest request;
    request.layers = 8;
    request.pp = 2;
    request.vpp = 2;
    plan.layout.split = std::make_shared<const StageSplit>(make_stage_split(request));
    return plan;
}

TEST(WorkloadOf, IsThePlansJobOnTheWholeCluster) {
    Plan plan = example();
    plan.routing.kind = RoutingKind::worst;
    const Workload own = workload_of(plan);
    EXPECT_EQ(own.model, plan.model);
    EXPECT_EQ(own.cluster, plan.cluster);
    EXPECT_EQ(own.batch, plan.batch);
    EXPECT_EQ(own.training, plan.training);
    EXPECT_EQ(own.routing, plan.routing);
    EXPECT_EQ(own.world, 16);
    EXPECT_FALSE(own.confine_tp);
    EXPECT_FALSE(own.confine_ep);
    EXPECT_EQ(own.memory_limit, plan.cluster.memory_bytes);
    const ClusterSpec other = load_cluster("dgx-b200");
    const Workload elsewhere = workload_of(plan, other);
    EXPECT_EQ(elsewhere.cluster, other);
    EXPECT_EQ(elsewhere.memory_limit, other.memory_bytes);
    EXPECT_EQ(elsewhere.model, plan.model);
}

std::string problems_of(const Json& json) {
    try {
        (void)plan_from_json(json, "plan.json");
        return "no problem";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

// --- random plans -------------------------------------------------------------------------------------------------

std::int64_t upto(std::int64_t high) {
    return *rc::gen::inRange<std::int64_t>(1, high + 1);
}
std::int64_t one_of(std::vector<std::int64_t> values) {
    return *rc::gen::elementOf(values);
}
bool coin() {
    return *rc::gen::arbitrary<bool>();
}
Dtype any_dtype() {
    return static_cast<Dtype>(*rc::gen::inRange(0, 5));
}

/// "Ettt|tt|…|ttmL" with random stage sizes, some of them empty in between.
StageSplitRequest random_layout_string(int pp, int vpp) {
    StageSplitRequest request;
    request.pp = pp;
    request.vpp = vpp;
    request.mtp_layers = upto(3) - 1;
    std::string text = "E";
    for (int stage = 0; stage < pp * vpp; ++stage) {
        if (stage > 0) text += '|';
        const std::int64_t count = upto(3);
        request.layers += count;
        text += count > 1 && coin() ? fmt::format("t*{}", count) : std::string(static_cast<std::size_t>(count), 't');
    }
    request.pipeline_layout = text + std::string(static_cast<std::size_t>(request.mtp_layers), 'm') + "L";
    return request;
}

StageSplitRequest random_split(int pp, int vpp) {
    StageSplitRequest request;
    request.pp = pp;
    request.vpp = vpp;
    const std::int64_t chunks = std::int64_t{pp} * vpp;
    switch (upto(pp > 2 ? 4 : 3)) {
        case 1:
            request.layers = chunks * upto(4);
            return request;
        case 2:
            request.account_for_embedding = coin();
            request.account_for_loss = !request.account_for_embedding || coin();
            request.layers = chunks * (upto(4) + 2) - (request.account_for_embedding ? 1 : 0) - (request.account_for_loss ? 1 : 0);
            return request;
        case 3:
            return random_layout_string(pp, vpp);
        default:
            request.first_stage_layers = vpp * upto(3);
            if (coin()) request.last_stage_layers = vpp * upto(3);
            const std::int64_t middle = pp - 1 - (request.last_stage_layers ? 1 : 0);
            request.layers = *request.first_stage_layers + request.last_stage_layers.value_or(0) + middle * vpp * upto(3);
            return request;
    }
}

ParallelSizes random_sizes() {
    ParallelSizes sizes;
    sizes.tp = one_of({1, 2, 3, 4});
    sizes.cp = one_of({1, 2, 5});
    sizes.pp = one_of({1, 2, 3, 4, 6});
    const std::int64_t dp = one_of({1, 2, 4, 6, 8});
    sizes.world = sizes.tp * sizes.cp * sizes.pp * dp;
    // Any expert grid over the same pipeline stage.
    const std::int64_t stage = sizes.world / sizes.pp;
    sizes.etp = one_of({1, 2, 3, 4});
    while (stage % sizes.etp != 0) --sizes.etp;
    sizes.ep = one_of({1, 2, 4, 8});
    while (stage / sizes.etp % sizes.ep != 0) sizes.ep /= 2;
    if (coin())
        sizes.order = AxisOrder::parse(
            *rc::gen::elementOf(std::vector<std::string>{"tp-cp-ep-dp-pp", "ep-tp-dp-cp-pp", "dp-tp-pp", "tp-cp-pp-ep-dp", "TP-DP"}));
    sizes.optimizer_instances = one_of({1, 1, 2});
    return sizes;
}

Plan random_plan() {
    Plan plan;
    do {
        plan.layout.sizes = random_sizes();
    } while (!problems(plan.layout.sizes).empty());
    Layout& layout = plan.layout;
    layout.vpp = layout.sizes.pp > 1 ? static_cast<int>(upto(3)) : 1;
    layout.group_size = layout.sizes.pp + (layout.vpp > 1 ? upto(3) - 1 : 0);
    layout.num_microbatches = layout.group_size * upto(3);
    layout.micro_batch = upto(4);
    layout.sequence_parallel = coin();
    layout.cp_comm_type = static_cast<CpCommType>(upto(4) - 1);
    layout.engine = static_cast<Engine>(upto(2) - 1);
    layout.recompute = static_cast<Recompute>(upto(3) - 1);
    if (layout.recompute == Recompute::selective) {
        for (std::int64_t i = upto(3); i > 0; --i) layout.recompute_modules.add(static_cast<RecomputeModule>(upto(7) - 1));
    } else if (layout.recompute == Recompute::full) {
        layout.recompute_method = static_cast<RecomputeMethod>(upto(2) - 1);
        layout.recompute_num_layers = upto(5);
    }
    for (std::int64_t i = upto(3) - 1; i > 0; --i) layout.cuda_graphs.add(static_cast<CudaGraphScope>(upto(7) - 1));
    layout.split = std::make_shared<const StageSplit>(make_stage_split(random_split(static_cast<int>(layout.sizes.pp), layout.vpp)));

    plan.model = small_model(layout.split->request().layers);
    plan.model.mtp_layers = layout.split->request().mtp_layers;
    plan.model.name = *rc::gen::elementOf(std::vector<std::string>{"a", "with \"quotes\" and \\", "größer", ""});
    plan.model.rotary_fraction = static_cast<double>(upto(3)) / 7.0 + 0.1;
    plan.model.tied_embeddings = coin();
    if (coin()) {
        plan.model.moe.emplace();
        plan.model.moe->experts = 8;
        plan.model.moe->top_k = upto(8);
        plan.model.moe->expert_ffn = 32;
        plan.model.moe->shared_ffn = upto(2) - 1;
        plan.model.moe->capacity_factor = coin() ? 1.1 : 0.0;
        for (std::int64_t i = 0; i < plan.model.layers; ++i) plan.model.moe_layers.push_back(coin());
    }
    if (coin()) plan.model.default_sequence = upto(5000);

    plan.cluster = load_cluster(*rc::gen::elementOf(cluster_preset_names()));
    plan.cluster.memory_bandwidth *= 1.0 / 3.0;  // no round number: all digits must survive
    plan.batch = {layout.dp() * layout.micro_batch * layout.num_microbatches, upto(100000)};

    TrainingSpec& training = plan.training;
    training.precision = static_cast<Precision>(upto(5) - 1);
    training.grad_dtype = any_dtype();
    training.main_param_dtype = any_dtype();
    training.exp_avg_dtype = any_dtype();
    training.exp_avg_sq_dtype = any_dtype();
    training.distributed_optimizer = coin();
    training.distributed_optimizer_instances = static_cast<int>(layout.sizes.optimizer_instances);
    for (bool* flag : {&training.overlap_grad_reduce, &training.overlap_param_gather, &training.overlap_p2p, &training.overlap_tp,
                       &training.overlap_moe, &training.fused_cross_entropy, &training.fp8_parameters})
        *flag = coin();
    training.attention = static_cast<AttentionBackend>(upto(2) - 1);
    return plan;
}

TEST(Plan, RandomPlansReadBackIdentically) {
    const auto property = [] {
        const Plan plan = random_plan();
        const std::string text = plan_to_json(plan).dump();
        const Plan read = plan_from_json(parse_json(text, "plan.json"), "plan.json");
        RC_ASSERT(read == plan);
        RC_ASSERT(plan_to_json(read).dump() == text);
    };
    EXPECT_TRUE(rc::check("plans read back identically", property));
}

TEST(Plan, AChangedFieldMakesAnotherPlan) {
    const Plan plan = example();
    EXPECT_EQ(plan, example());
    std::vector<Plan> others(6, plan);
    others[0].model.vocab += 1;
    others[1].cluster.nvls = false;
    others[2].batch.sequence += 1;
    others[3].training.overlap_tp = true;
    others[4].layout.micro_batch = 4;
    StageSplitRequest request = plan.layout.split->request();
    request.pipeline_layout = "Et*2|tt|tt|ttL";  // the same chunks, asked for in another way
    others[5].layout.split = std::make_shared<const StageSplit>(make_stage_split(request));
    for (const auto& other : others) EXPECT_FALSE(other == plan);
}

TEST(Plan, HoldsHowItsBatchGrows) {
    Plan plan = example();
    EXPECT_FALSE(plan_to_json(plan).contains("batch_schedule")) << "nothing is stated";
    plan.batches.ramp_up = {.start = 8, .increment = 8, .samples = 1000};
    plan.batches.steps = {{0, 16}, {1 << 20, 32}};
    plan.batches.train_iterations = 100;
    plan.batches.train_samples = 5000;
    plan.batches.resumed = plan.batches.decreases = true;
    plan.batches.whole_batch = 33;
    const Plan read = plan_from_json(plan_to_json(plan), "plan.json");
    EXPECT_EQ(read, plan);
    EXPECT_EQ(read.batches, plan.batches);
    EXPECT_FALSE(plan == example());
    nlohmann::ordered_json json = plan_to_json(plan);
    json["batch_schedule"]["steps"][1]["batch"] = 0;
    json["batch_schedule"]["train_iters"] = 3;
    try {
        (void)plan_from_json(json, "plan.json");
        ADD_FAILURE() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("batch_schedule: steps: batch = 0"));
        EXPECT_THAT(error.what(), testing::HasSubstr("train_iters"));
    }
}

TEST(Plan, LayoutHasTheFieldsOfTheCommandLineDocumentation) {
    const Json layout = layout_to_json(example().layout);
    for (const char* field : {"tp",
                              "cp",
                              "ep",
                              "etp",
                              "dp",
                              "edp",
                              "pp",
                              "vpp",
                              "group_size",
                              "order",
                              "micro_batch",
                              "num_microbatches",
                              "sequence_parallel",
                              "cp_comm_type",
                              "recompute",
                              "recompute_modules",
                              "recompute_method",
                              "recompute_num_layers",
                              "layers_per_chunk",
                              "pipeline_layout",
                              "cuda_graphs",
                              "engine"})
        EXPECT_TRUE(layout.contains(field)) << field;
    EXPECT_EQ(layout["dp"].dump(), "4");
    EXPECT_EQ(layout["layers_per_chunk"].dump(), "[[2,2],[2,2]]");
    EXPECT_EQ(layout["order"], "tp-cp-ep-dp-pp");
    EXPECT_EQ(layout["recompute_modules"].dump(), "[\"core_attn\"]");
    EXPECT_TRUE(layout["recompute_num_layers"].is_null());
    EXPECT_TRUE(layout["pipeline_layout"].is_null());
}

TEST(Plan, HoldsTheScheduleOfItsLayout) {
    Json json = plan_to_json(example());
    EXPECT_EQ(json["layout"]["schedule"], "interleaved");
    Json older = json;
    older["layout"].erase("schedule");
    EXPECT_EQ(plan_from_json(older, "older.json"), example()) << "files from before have none";
    json["layout"]["schedule"] = "1f1b";
    EXPECT_THAT(problems_of(json), HasSubstr("schedule = 1f1b contradicts pp = 2 and vpp = 2, which run interleaved"));
    json["layout"]["schedule"] = "zb-x";
    EXPECT_THAT(problems_of(json), HasSubstr("schedule = 'zb-x' is not known; use none, 1f1b, interleaved, zb-h1"));
    json["layout"]["schedule"] = "zb-h1";
    EXPECT_THAT(problems_of(json), HasSubstr("schedule zb-h1 has one model chunk a rank, but vpp = 2; use vpp = 1"));
    Plan plan = example();
    plan.layout.schedule = SplitSchedule::zb_v;
    StageSplitRequest request = plan.layout.split->request();
    request.v_shaped = true;
    request.pipeline_layout = "Et|t|tt|ttttL";
    plan.layout.split = std::make_shared<const StageSplit>(make_stage_split(request));
    // Rank 0 has both ends of the model, and rank 1 the turn.
    EXPECT_TRUE(plan.layout.split->chunk(0, 0).embedding && plan.layout.split->chunk(0, 1).loss);
    EXPECT_EQ(plan.layout.split->chunk(1, 1).first_decoder, 2);
    EXPECT_EQ(plan.layout.split->decoders(0), 5);
    json = plan_to_json(plan);
    EXPECT_EQ(json["layout"]["schedule"], "zb-v");
    EXPECT_EQ(json["layout"]["layers_per_chunk"], Json::parse("[[1,4],[1,2]]"));
    EXPECT_EQ(plan_from_json(json, "plan.json"), plan);
    json["layout"]["num_microbatches"] = 2;
    json["layout"]["schedule"] = "dualpipe-v";
    EXPECT_THAT(problems_of(json), HasSubstr("fewer than kind dualpipe-v needs on pp = 2; use 4 or more"));
}

TEST(Plan, OtherVersionsAndOtherFilesAreRefusedAtOnce) {
    Json json = plan_to_json(example());
    json["mgplan_plan"] = 2;
    json.erase("model");
    EXPECT_THAT(problems_of(json), HasSubstr("plan.json: plan version 2 cannot be read, only version 1; write the plan again"));
    EXPECT_THAT(problems_of(json), Not(HasSubstr("model")));
    json.erase("mgplan_plan");
    EXPECT_THAT(problems_of(json), HasSubstr("this is no plan"));
    EXPECT_THAT(problems_of(Json::array()), HasSubstr("this is no plan"));
    EXPECT_THAT(problems_of(Json("text")), HasSubstr("this is no plan"));
}

TEST(Plan, ReportsProblemsOfAllPartsTogether) {
    Json json = plan_to_json(example());
    json["batch"]["sequence"] = 0;
    json["training"]["precision"] = "bf8";
    json["training"]["overlap_tb"] = true;
    json["layout"]["cp_comm_type"] = "p2";
    json["layout"]["recompute_modules"] = {"core_attention"};
    json["layout"]["tp"] = "two";
    json["cluster"].erase("network");
    json["colour"] = "blue";
    const std::string problems = problems_of(json);
    EXPECT_THAT(problems, HasSubstr("plan.json: batch: sequence = 0 is out of range"));
    EXPECT_THAT(problems, HasSubstr("plan.json: training: precision = 'bf8' is not known; use bf16, fp16, fp32, fp64, fp8 or nvfp4"));
    EXPECT_THAT(problems, HasSubstr("unknown field 'overlap_tb'; did you mean overlap_tp"));
    EXPECT_THAT(problems, HasSubstr("plan.json: layout: cp_comm_type = 'p2' is not known; use p2p, all_gather, a2a or a2a+p2p"));
    EXPECT_THAT(problems, HasSubstr("recompute_modules holds 'core_attention'; use core_attn"));
    EXPECT_THAT(problems, HasSubstr("plan.json: layout: tp = \"two\" is not a whole number"));
    EXPECT_THAT(problems, HasSubstr("plan.json: cluster: field 'network' is missing"));
    EXPECT_THAT(problems, HasSubstr("unknown field 'colour'"));
}

TEST(Plan, SizesThatContradictEachOtherAreRefused) {
    const auto changed = [](const char* part, const char* field, const Json& value) {
        Json json = plan_to_json(example());
        json[part][field] = value;
        return problems_of(json);
    };
    EXPECT_THAT(changed("layout", "dp", 8), HasSubstr("dp = 8 contradicts world / (tp·cp·pp) = 4; write 4"));
    EXPECT_THAT(changed("layout", "edp", 1), HasSubstr("edp = 1 contradicts world / (etp·ep·pp) = 4"));
    EXPECT_THAT(changed("layout", "tp", 3), HasSubstr("world = 16 is no multiple of tp·cp·pp with tp = 3"));
    EXPECT_THAT(changed("layout", "layers_per_chunk", {{1, 3}, {2, 2}}), HasSubstr("write [[2,2],[2,2]]"));
    EXPECT_THAT(changed("layout", "layers_per_chunk", Json::array()), HasSubstr("layers_per_chunk contradicts"));
    EXPECT_THAT(changed("layout", "pipeline_layout", "Et|x"), HasSubstr("plan.json: layout: "));
    EXPECT_THAT(changed("layout", "group_size", 1), HasSubstr("the interleaved schedule refuses pp = 2"));
    EXPECT_THAT(changed("layout", "order", "tp-xp"), HasSubstr("plan.json: layout: "));
    EXPECT_THAT(changed("layout", "optimizer_instances", 2), HasSubstr("contradicts training.distributed_optimizer_instances = 1"));
    EXPECT_THAT(changed("layout", "micro_batch", 4), HasSubstr("do not multiply to batch.global_batch = 64"));
    EXPECT_THAT(changed("layout", "recompute", "full"), HasSubstr("needs recompute_method (uniform or block)"));
    EXPECT_THAT(changed("batch", "global_batch", 63), HasSubstr("do not multiply to batch.global_batch = 63"));
    Json json = plan_to_json(example());
    json["layout"]["split"]["layers"] = 12;
    json["layout"]["layers_per_chunk"] = {{3, 3}, {3, 3}};
    EXPECT_THAT(problems_of(json), HasSubstr("layout.split.layers = 12 contradicts model.layers = 8"));
}

TEST(Plan, AbsurdNumbersAreRefusedWithoutAllocating) {
    for (const char* field : {"world", "tp", "cp", "ep", "etp", "dp", "edp", "pp", "vpp", "group_size", "micro_batch", "num_microbatches",
                              "optimizer_instances", "recompute_num_layers"}) {
        for (const Json& bad :
             {Json(0), Json(-1), Json(1LL << 40), Json(1e30), Json(9223372036854775808ULL), Json(std::nan("")), Json(1.5)}) {
            Json json = plan_to_json(example());
            json["layout"][field] = bad;
            EXPECT_NE(problems_of(json), "no problem") << field << " " << bad.dump();
        }
    }
    // Each in range, their product beyond 64 bits.
    Json json = plan_to_json(example());
    for (const char* field : {"world", "tp", "cp", "ep", "etp", "num_microbatches"}) json["layout"][field] = std::int64_t{1} << 32;
    for (const char* field : {"pp", "vpp"}) json["layout"][field] = 1 << 20;
    EXPECT_THAT(problems_of(json), HasSubstr("world = 4294967296 is no multiple of tp·cp·pp"));
    EXPECT_THAT(problems_of(json), HasSubstr("model chunks"));
}

TEST(Plan, DamagedFilesGiveAnErrorOrAValidPlan) {
    const std::string text = plan_to_json(example()).dump();
    int refused = 0, read = 0;
    const auto attempt = [&](const std::string& damaged) {
        try {
            const Plan plan = plan_from_json(parse_json(damaged, "plan.json"), "plan.json");
            (void)plan_to_json(plan);
            ++read;
        } catch (const ConfigError&) {
            ++refused;
        }
    };
    for (std::size_t size = 0; size < text.size(); size += 37) attempt(text.substr(0, size));
    EXPECT_EQ(read, 0);  // a cut file is never a plan
    std::mt19937_64 random(20240607);
    for (int i = 0; i < 1500; ++i) {
        std::string damaged = text;
        // The layout and the batch stand at the end, the sources' free text before it: half of the flips go where it matters.
        const std::size_t begin = i % 2 == 0 ? text.find("\"batch\"") : 0;
        for (int flips = 1 + i % 3; flips > 0; --flips) {
            const std::size_t at = begin + random() % (text.size() - begin);
            damaged[at] = i % 5 == 0 ? "0123456789-.eE\"{}[],:"[random() % 21] : static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
        }
        attempt(damaged);
    }
    EXPECT_GT(refused, 500);
    EXPECT_GT(read, 0);  // a flip inside a name
}

TEST(TrainingJson, DefaultsReadBackAndMissingFieldsAreNamed) {
    EXPECT_EQ(training_from_json(training_to_json(TrainingSpec{}), "here"), TrainingSpec{});
    Json json = training_to_json(TrainingSpec{});
    json.erase("overlap_p2p");
    try {
        (void)training_from_json(json, "here");
        FAIL() << "a missing field passed";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("here: field 'overlap_p2p' is missing"));
    }
}

TEST(LayoutNames, EveryNameReadsBackAndOthersDoNot) {
    for (const auto& name : recompute_names()) EXPECT_EQ(to_string(parse_recompute(name).value()), name);
    for (const auto& name : recompute_method_names()) EXPECT_EQ(to_string(parse_recompute_method(name).value()), name);
    for (const auto& name : recompute_module_names()) EXPECT_EQ(to_string(parse_recompute_module(name).value()), name);
    for (const auto& name : cuda_graph_scope_names()) EXPECT_EQ(to_string(parse_cuda_graph_scope(name).value()), name);
    for (const auto& name : cp_comm_type_names()) EXPECT_EQ(to_string(parse_cp_comm_type(name).value()), name);
    for (const auto& name : engine_names()) EXPECT_EQ(to_string(parse_engine(name).value()), name);
    EXPECT_EQ(parse_recompute_module("core_attn"), RecomputeModule::core_attn);
    EXPECT_EQ(parse_recompute_module("shared_experts"), RecomputeModule::shared_experts);
    EXPECT_EQ(parse_cuda_graph_scope("full_iteration"), CudaGraphScope::full_iteration);
    EXPECT_EQ(parse_cp_comm_type("a2a+p2p"), CpCommType::a2a_p2p);
    EXPECT_EQ(parse_recompute("Full"), std::nullopt);
    EXPECT_EQ(parse_engine(""), std::nullopt);
}

TEST(LayoutNames, SummaryNamesTheSizes) {
    EXPECT_EQ(summary(example().layout), "tp2 cp1 ep1 etp2 pp2 vpp2 mbs2 sp p2p selective");
}

TEST(Precision, IsNamedAsItIsRead) {
    for (const std::string& word : precision_choices()) {
        const auto choice = parse_precision_choice(word);
        ASSERT_TRUE(choice) << word;
        TrainingSpec training;
        training.precision = choice->precision;
        training.megatron.fp8_recipe = choice->recipe;
        EXPECT_EQ(precision_text(training), word == "fp8" ? "fp8-current" : word);
    }
    EXPECT_FALSE(parse_precision_choice("fp8-tensorwise"));
    EXPECT_FALSE(parse_precision_choice(""));
}

}  // namespace
}  // namespace mgplan::plan_test
