// The table of Megatron-LM's flags: each row is read as it is written, and no flag stands outside without a reason.
#include "formats/megatron/flag_rows.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <type_traits>

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/megatron/megatron_flag_groups.hpp"
#include "formats/megatron/megatron_job.hpp"
#include "formats/megatron/megatron_mixers.hpp"
#include "tests/formats/megatron/plain_plan.hpp"

namespace mgplan::formats::flag_rows_test {
namespace {

using tests::megatron::plain_plan, tests::megatron::split_stages;

/// What each row says of itself in failures.
std::string first_flag(const FlagRow& row) {
    return std::string(flags_of(row).front().name);
}

void for_each_row(const std::function<void(const FlagTopic&, const FlagRow&)>& visit) {
    for (const FlagPart& part : flag_parts()) {
        for (const FlagTopic& topic : part.topics) {
            for (const FlagRow& row : topic.rows) visit(topic, row);
        }
    }
}

std::vector<FlagGroup> all_groups() {
    std::vector<FlagGroup> all;
    for (const auto groups : {used_flag_groups(), not_computed_flag_groups(), flag_groups_without_effect()})
        all.insert(all.end(), groups.begin(), groups.end());
    return all;
}

std::vector<std::string> names_of(const FlagGroup& group) {
    auto names = split(group.names, ' ');
    std::erase(names, "");
    return {names.begin(), names.end()};
}

std::map<std::string, FlagArity> flags_with_rows() {
    std::map<std::string, FlagArity> flags;
    for_each_row([&](const FlagTopic&, const FlagRow& row) {
        for (const RowFlag& flag : flags_of(row))
            EXPECT_TRUE(flags.emplace(flag.name, flag.arity).second) << flag.name << " stands in two rows";
    });
    return flags;
}

TEST(FlagRows, HoldEveryFlagThatIsReadUnlessAGroupSaysWhatItIsReadFor) {
    const auto rows = flags_with_rows();
    std::set<std::string> with_reason;
    for (const FlagGroup& group : all_groups()) {
        for (const std::string& name : names_of(group)) {
            const auto row = rows.find(name);
            if (row == rows.end()) {
                EXPECT_TRUE(group.effect != FlagEffect::used || !group.read_for.empty()) << name << " is used: give it a row";
            } else {
                EXPECT_EQ(row->second, group.arity) << name;
                EXPECT_EQ(group.read_for, "") << name << " has a row, which says what it is read for";
            }
            if (!group.read_for.empty()) with_reason.insert(name);
        }
    }
    for (const std::string& name : flag_names()) {
        const std::string bare = name.substr(2);
        EXPECT_EQ(find_flag(name)->read, rows.contains(bare) || with_reason.contains(bare)) << name;
    }
}

using Change = std::function<void(Plan&)>;

/// Plans in which each row is written somewhere: models, and what is changed in each.
std::vector<std::pair<std::string, Change>> changes() {
    const auto shards = [](FullyShardedKind kind) {
        return [kind](Plan& plan) {
            plan.training.megatron.fully_sharded.kind = kind;
            plan.training.megatron.fully_sharded.double_buffer = kind == FullyShardedKind::megatron_fsdp;
            plan.training.megatron.gradient_accumulation_fusion = false;
            plan.training.distributed_optimizer = kind == FullyShardedKind::megatron_fsdp;
            plan.training.overlap_param_gather = plan.training.overlap_grad_reduce = true;
            if (kind == FullyShardedKind::torch_fsdp2) plan.training.megatron.fully_sharded.strategy = ShardingStrategy::optim_grads_params;
            plan.model.tied_embeddings = false;
        };
    };
    return {
        {"llama3.1-8b", [](Plan&) {}},
        {"llama3.1-8b", [](Plan& plan) { plan.training.precision = Precision::fp16; }},
        {"llama3.1-8b", [](Plan& plan) { plan.training.grad_dtype = Dtype::bf16; }},
        {"llama3.1-8b", [](Plan& plan) { plan.layout.cuda_graphs = {CudaGraphScope::full_iteration}; }},
        {"llama3.1-8b", shards(FullyShardedKind::torch_fsdp2)},
        {"llama3.1-8b", shards(FullyShardedKind::megatron_fsdp)},
        {"llama3.1-8b", [](Plan& plan) { split_stages(plan, 2, 2); }},
        {"llama3.1-8b",
         [](Plan& plan) {
             plan.model.rotary_scaling = "llama3";
             plan.model.rotary_scaling_values = {.factor = 4, .original_positions = 8192};
             plan.model.attention_sinks = true;
             plan.model.sliding_window = 128;
             plan.model.full_attention_every = 2;
         }},
        {"llama3.1-8b",
         [](Plan& plan) {
             plan.model.rotary_scaling = "linear";
             plan.model.rotary_scaling_values = {.factor = 4};
             plan.model.gated_mlp = false;
             plan.model.activation = Activation::squared_relu;
             plan.model.padded_rows = 1 << 20;
             plan.model.mtp_layers = 2;
             plan.model.mtp_repeated = true;
         }},
        {"llama3.1-8b",
         [](Plan& plan) {
             plan.layout.sizes.world = plan.layout.sizes.cp = 2;
             plan.layout.cp_comm_type = CpCommType::a2a_p2p;
             plan.layout.sizes.order = AxisOrder::parse("tp-cp-ep-pp-dp");
             plan.training.attention = AttentionBackend::unfused;
             plan.training.megatron.bias_activation_fusion = false;
             plan.training.megatron.activation_clamp = 5;
             plan.training.megatron.optimizer = OptimizerKind::muon;
             plan.training.distributed_optimizer = true;
         }},
        {"llama3.1-8b",
         [](Plan& plan) {
             plan.layout.sizes.world = 2;
             plan.training.megatron.weight_shards.dense = 2;
         }},
        {"llama3.1-8b",
         [](Plan& plan) {
             plan.model.hyper_connections = HyperConnections{.streams = 3, .learned_head = true};
             plan.layout.recompute = Recompute::selective;
             plan.layout.recompute_modules = {RecomputeModule::mhc};
             plan.layout.recompute_num_layers = 4;
         }},
        {"llama3.1-8b",
         [](Plan& plan) {
             plan.layout.cuda_graphs = {CudaGraphScope::attn};
             plan.training.precision = Precision::fp8;
             plan.training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
             plan.training.fp8_parameters = true;
         }},
        {"llama3.1-8b",
         [](Plan& plan) {
             plan.training.precision = Precision::nvfp4;
             plan.training.megatron.bf16_layers_at_start = 2;
         }},
        {"llama3.1-8b",
         [](Plan& plan) {
             plan.training.offload.optimizer = 0.5;
             plan.training.megatron.precision_aware_optimizer = true;
             plan.training.megatron.overlap_host_update = true;
         }},
        {"llama3.1-8b",
         [](Plan& plan) {
             plan.training.offload.states = 0.5;
             plan.training.offload.modules = {OffloadModule::core_attn};
         }},
        {"deepseek-v3",
         [](Plan& plan) {
             plan.model.mla->index_heads = 4;
             plan.model.mla->index_head_dim = 64;
             plan.model.mla->index_top_k = 128;
         }},
        {"mixtral-8x7b",
         [](Plan& plan) {
             MoeSpec& moe = *plan.model.moe;
             moe.dispatcher = TokenDispatcher::hybrid_ep;
             moe.normalize_top_k = false;
             moe.groups = 2;
             moe.group_top_k = 1;
             plan.model.moe_layers[0] = false;
             plan.training.megatron.op_fuser = true;
             plan.training.megatron.dispatcher_sms = 16;
             plan.training.megatron.expert_buffers.capacity = 1.5;
         }},
        {"nemotron-h-8b", [](Plan&) {}},
        {"gpt-oss-20b", [](Plan& plan) { plan.model.rotary_scaling = "yarn"; }},
        {"deepseek-v3", [](Plan& plan) { plan.model.rotary_scaling = "yarn"; }},
        {"smollm3-3b", [](Plan&) {}},
        {"llama4-scout", [](Plan&) {}},
    };
}

TEST(FlagRows, AreReadAsTheyAreWritten) {
    std::set<std::string> written;
    for (const auto& [model, change] : changes()) {
        Plan plan = plain_plan(model);
        change(plan);
        const MegatronJob job = megatron_job(plan, std::nullopt);
        for (const MegatronFlags& part : job.parts) {
            for (const MegatronFlag& flag : part.flags) {
                written.insert(flag.name.substr(2));
                EXPECT_TRUE(find_flag(flag.name)->read) << flag.name << " is written and never read";
            }
        }
        Job read = read_megatron_arguments(job.words(), model, {.held_against = HeldAgainst::nothing});
        FlagWriter again(plan);
        for (const FlagPart& part : flag_parts()) {
            for (const FlagTopic& topic : part.topics) write_topic(again, topic, read);
        }
        MegatronJob second;
        second.parts = {{"", again.take()}};
        EXPECT_EQ(fmt::format("{}", fmt::join(second.words(), " ")), fmt::format("{}", fmt::join(job.words(), " "))) << model;
    }
    for_each_row([&](const FlagTopic&, const FlagRow& row) {
        const auto* both = std::get_if<Both>(&row.kind);
        if (both == nullptr) return;
        const auto flags = flags_of(row);
        EXPECT_TRUE(std::any_of(flags.begin(), flags.end(), [&](const RowFlag& flag) { return written.contains(std::string(flag.name)); }))
            << "no plan here writes --" << first_flag(row);
    });
}

/// Jobs in one of which each field exists and may be written.
std::vector<Job> jobs() {
    std::vector<Job> all;
    const auto add = [&](const std::string& model, const std::function<void(Job&)>& change) {
        all.push_back(job_of(plain_plan(model)));
        change(all.back());
    };
    add("llama3.1-8b", [](Job& job) { job.model.mlp_bias = job.model.qkv_bias = false; });
    add("llama3.1-8b", [](Job& job) {
        job.layout->tp = job.layout->vpp = 2;
        job.layout->recompute = Recompute::full;
        job.model.mtp_layers = 1;
        job.training->precision = Precision::fp8;
        job.training->megatron.fully_sharded.kind = FullyShardedKind::torch_fsdp2;
        job.training->megatron.precision_aware_optimizer = true;
        job.model.hyper_connections.emplace();
    });
    add("llama3.1-8b", [](Job& job) { job.training->megatron.fully_sharded.kind = FullyShardedKind::megatron_fsdp; });
    add("deepseek-v3", [](Job& job) {
        job.model.rotary_scaling = "yarn";
        job.model.moe->score = RouterScore::sigmoid;
        job.model.moe->expert_bias = true;
        job.model.moe->capacity_factor = 1;
        job.model.moe->shared_ffn = 64;
    });
    return all;
}

bool agrees(Asks asks, const Job& job) {
    return asks == nullptr || asks(job);
}

/// Gives a row's field a value that is neither its fallback nor what it holds.
struct ChangeField {
    Job& job;

    template <class Number>
    void operator()(const NumberRow<Number>& row) const {
        Number& field = row.field(job);
        const Number was = field;
        const Number step = std::min<Number>(row.high - row.low, 2) / 2;
        for (const Number value : {std::min(row.low + 3 * step, row.high), row.low + 2 * step, row.low + step}) {
            if (value != was && row.fallback != value) field = value;
        }
        EXPECT_NE(field, was);
    }
    void operator()(const Stated& row) const { row.field(job) = row.low + 1; }
    void operator()(const Switch& row) const { row.field(job) = row.given; }
    template <class Value>
    void operator()(const Word<Value>& row) const {
        for (const auto& [word, value] : row.words) {
            if (value != row.fallback) row.field(job) = value;
        }
    }
    void operator()(const Both&) const {}
};

TEST(FlagRows, GiveBackAnotherValueOfTheirField) {
    std::size_t rows = 0;
    for_each_row([&](const FlagTopic& topic, const FlagRow& row) {
        if (std::holds_alternative<Both>(row.kind)) return;
        SCOPED_TRACE(first_flag(row));
        const auto all = jobs();
        const auto found = std::find_if(all.begin(), all.end(), [&](const Job& job) {
            return agrees(topic.exists, job) && agrees(row.beside, job) && agrees(row.heeded, job);
        });
        ASSERT_NE(found, all.end()) << "no job here has the field";
        Job changed = *found, read = *found;
        std::visit(ChangeField{changed}, row.kind);
        const Plan plan = plain_plan("llama3.1-8b");
        FlagWriter out(plan), again(plan);
        write_row(out, row, changed);
        MegatronJob first, second;
        first.parts = {{"", out.take()}};
        ASSERT_FALSE(first.words().empty());
        for (const std::string& word : first.words()) {
            if (word.starts_with("--")) {
                EXPECT_EQ(word, "--" + first_flag(row));
            }
        }
        const ParsedFlags parsed = parse_flags(first.words());
        Problems problems;
        FlagAccount account = parsed.account;
        const MegatronSurroundings surroundings;
        const std::string where = "written";
        FlagReader flags(parsed, where, problems, account, surroundings);
        read_row(flags, row, read);
        EXPECT_THAT(problems.list(), ::testing::IsEmpty());
        write_row(again, row, read);
        second.parts = {{"", again.take()}};
        EXPECT_EQ(second.words(), first.words());
        // Without the flag the field says something else.
        const ParsedFlags none;
        FlagReader silent(none, where, problems, account, surroundings);
        Job without = *found;
        read_row(silent, row, without);
        FlagWriter left(plan);
        write_row(left, row, without);
        second.parts = {{"", left.take()}};
        EXPECT_NE(second.words(), first.words());
        ++rows;
    });
    EXPECT_GT(rows, 100U);
}

TEST(FlagRows, NameTheSizesOfEachMixer) {
    for (const MegatronMixer& mixer : megatron_mixers()) {
        for (const std::string_view flag : mixer.size_flags) {
            const std::optional<Flag> known = find_flag(flag);
            ASSERT_TRUE(known) << flag;
            EXPECT_EQ(known->effect, FlagEffect::used) << flag;
        }
    }
}

}  // namespace
}  // namespace mgplan::formats::flag_rows_test
