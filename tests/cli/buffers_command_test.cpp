// The command buffers: formats and bad input. Its numbers are held by tests/golden and tests/model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/parameter_file.hpp"
#include "plan/text/errors.hpp"
#include "say.hpp"

namespace mgplan::cli::testing::buffers_command_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string list_refusal(const std::string& text) {
    try {
        (void)read_parameter_list(text, "p.json");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

class BuffersCommand : public ::testing::Test {
protected:
    TempFile file_{"buffers.json",
                   R"([{"name":"a,b","shape":[10],"dtype":"bf16"},{"name":"w","shape":[10,10],"dtype":"bf16","expert":false},)"
                   R"({"name":"e","shape":[],"dtype":"fp32","expert":true}])"};
    const std::string& path_ = file_.path();
};

TEST_F(BuffersCommand, PrintsJsonAsDocumented) {
    const Said said = say("buffers --params " + path_ + " --dp 2 --edp 1 --shards --format json");
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_EQ(said.out,
              R"({"bucket_size":40000000,"buffers":[{"param_dtype":"bf16","grad_dtype":"fp32","expert":false,"dp":2,)"
              R"("params":[{"name":"w","start":0,"end":100,"bucket":0},{"name":"a,b","start":128,"end":138,"bucket":0}],)"
              R"("buckets":[{"start":0,"end":256,"numel_unpadded":138}],"numel":256,"numel_unpadded":138},)"
              R"({"param_dtype":"fp32","grad_dtype":"fp32","expert":true,"dp":1,"params":[{"name":"e","start":0,"end":1,"bucket":0}],)"
              R"("buckets":[{"start":0,"end":128,"numel_unpadded":1}],"numel":128,"numel_unpadded":1}],)"
              R"("bucket_groups":[[[0,0]]],"expert_bucket_groups":[[[1,0]]],)"
              R"("shards":[[[[{"param":"w","world":[0,100],"world_in_bucket":[0,100],"local":[0,100],"in_param":[0,100]}]],)"
              R"([[{"param":"a,b","world":[128,138],"world_in_bucket":[128,138],"local":[0,10],"in_param":[0,10]}]]],)"
              R"([[[{"param":"e","world":[0,1],"world_in_bucket":[0,1],"local":[0,1],"in_param":[0,1]}]]]]})"
              "\n");
}

TEST_F(BuffersCommand, PrintsCsvAndTable) {
    EXPECT_THAT(
        say("buffers --params " + path_ + " --dp 2 --format csv").out,
        StartsWith(
            "buffer,param_dtype,grad_dtype,expert,bucket,name,start,end\n0,bf16,fp32,0,0,w,0,100\n0,bf16,fp32,0,0,\"a,b\",128,138\n"));
    EXPECT_THAT(say("buffers --params " + path_ + " --dp 2 --shards --format csv").out,
                HasSubstr("0,1,0,\"a,b\",128,138,128,138,0,10,0,10\n"));
    const Said table = say("buffers --model llama3.1-405b --tp 8 --pp 16 --dp 128 --shards");
    EXPECT_EQ(table.code, kDone) << table.err;
    EXPECT_THAT(table.out, HasSubstr("buckets cut from 128,000,000 elements on"));
    EXPECT_THAT(table.out, HasSubstr("... 88 ranks in the middle left out"));
    for (const auto& line : split(table.out, '\n')) EXPECT_LE(line.size(), 100U) << line;
}

TEST(BuffersOfModel, FollowTheModelsStagesAndGroups) {
    // The expert group by --edp, by --ep, and by both.
    const std::string by_edp = say("buffers --model deepseek-v3 --pp 16 --pp-rank 3 --dp 128 --edp 2 --format json").out;
    EXPECT_THAT(by_edp, HasSubstr(R"("expert":true,"dp":2)"));
    EXPECT_EQ(say("buffers --model deepseek-v3 --pp 16 --pp-rank 3 --dp 128 --ep 64 --format json").out, by_edp);
    EXPECT_EQ(say("buffers --model deepseek-v3 --pp 16 --pp-rank 3 --dp 128 --ep 64 --edp 2 --format json").out, by_edp);
    // Later stages and chunks are one bucket a buffer.
    EXPECT_THAT(by_edp, StartsWith(R"({"bucket_size":null)"));
    EXPECT_THAT(say("buffers --model llama3-8b --pp 2 --vpp 2 --chunk 1 --dp 2 --format json").out, StartsWith(R"({"bucket_size":null)"));
    EXPECT_THAT(say("buffers --model llama3-8b --pp 2 --vpp 2 --dp 2 --format json").out, StartsWith(R"({"bucket_size":40000000)"));
}

TEST_F(BuffersCommand, RefusesModelsThatAreOnlyCounted) {
    const TempFile config("counted.json",
                          R"({"model_type":"bitnet","vocab_size":1024,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,)"
                          R"("num_attention_heads":4,"num_key_value_heads":4,"max_position_embeddings":256})");
    expect_refused("buffers --model " + config.path() + " --dp 2", "model_type 'bitnet' is counted and nothing else");
}

TEST_F(BuffersCommand, RefusesBadOptions) {
    expect_refused("buffers", "a PLAN, --params or --model is missing");
    expect_refused("buffers", "--dp is missing");
    expect_refused("buffers --model llama3-8b --dp 0", "--dp = 0 is out of range");
    expect_refused("buffers --model llama3-8b --dp 9223372036854775808", "is a whole number out of range");
    expect_refused("buffers --model llama3-8b --dp 2 --params x", "exclude each other");
    expect_refused("buffers --model llama3-8b --dp 2 --bucket-size 0", "--bucket-size = '0' is no number of elements");
    expect_refused("buffers --model llama3-8b --dp 2 --bucket-size -5", "--bucket-size");
    expect_refused("buffers --model llama3-8b --dp 2 --tp 3", "tp = 3 does not divide attention heads = 32");
    expect_refused("buffers --model llama3-8b --dp 2 --pp 2 --pp-rank 2", "--pp-rank = 2 is not below pp = 2; use 0 to 1");
    expect_refused("buffers --model llama3-8b --dp 2 --chunk 1", "--chunk = 1 is not below vpp = 1");
    expect_refused("buffers --model llama3-8b --dp 16777216 --tp 8", "makes more than 16777216 ranks");
    expect_refused("buffers --model deepseek-v3 --dp 128 --edp 3", "--edp = 3 is not dp·tp / (etp·ep)");
    expect_refused("buffers --model llama3-8b --dp 2 --shards --no-distributed-optimizer", "--shards needs the distributed optimizer");
    expect_refused("buffers --model llama3-8b --dp 16777216 --shards --format json", "--shards would list more than 16,777,216 ranges");
    expect_refused("buffers --params " + path_ + " --dp 2 --tp 2", "--tp belongs to --model");
    expect_refused("buffers --params /does/not/exist --dp 2", "is not there; check the path");
    expect_refused("buffers --model llama3-8b --dp 2 --shard", "did you mean --shards");
}

TEST(ParameterFile, NamesEveryMistake) {
    EXPECT_THAT(list_refusal("[{]"), HasSubstr("p.json:1:3: not valid JSON"));
    EXPECT_THAT(list_refusal("{}"), HasSubstr("p.json holds no list"));
    EXPECT_THAT(list_refusal("[]"), HasSubstr("p.json lists no parameters"));
    EXPECT_THAT(list_refusal("[1]"), HasSubstr("p.json[0] is 1; it must be an object"));
    EXPECT_THAT(list_refusal(R"([{"name":"a","dtype":"bf16"}])"), HasSubstr("p.json[0]: field 'shape' is missing"));
    const std::string several =
        list_refusal(R"([{"name":"a","shape":[0],"dtype":"int4"},{"shape":[1],"dtype":"bf16","shard_embedding":true}])");
    EXPECT_THAT(several, HasSubstr("p.json[0]: shape holds 0"));
    EXPECT_THAT(several, HasSubstr("p.json[0]: dtype = 'int4' is not known; use bf16, fp16, fp32 or fp8"));
    EXPECT_THAT(several, HasSubstr("p.json[1]: field 'name' is missing"));
    EXPECT_THAT(several, HasSubstr("shard_embedding"));
    EXPECT_THAT(list_refusal(R"([{"name":"a","shape":[1],"dtype":"bf16"},{"name":"a","shape":[1],"dtype":"bf16"}])"),
                HasSubstr("name = 'a' stands in the list twice"));
    EXPECT_THAT(list_refusal(R"([{"name":"a","shape":[1073741824,1073741824,2],"dtype":"bf16"}])"), HasSubstr("shape makes more than"));
    EXPECT_THAT(list_refusal(R"([{"name":"a","shape":[1e30],"dtype":"bf16"}])"), HasSubstr("shape holds 1e+30"));
    std::string many = "[1";
    for (int i = 0; i < 100'000; ++i) many += ",1";
    EXPECT_LT(list_refusal(many + "]").size(), 4000U);
}

}  // namespace
}  // namespace mgplan::cli::testing::buffers_command_test
