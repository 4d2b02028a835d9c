// The files of a checkpoint: checksums, safetensors, manifests, folders.
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/crc32c.hpp"
#include "runtime/checkpoint/durable_file.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/slice_text.hpp"
#include "tests/runtime/checkpoint/temporary_folder.hpp"
#include "tests/support/growth.hpp"

namespace mgplan::runtime::checkpoint_files_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::TemporaryFolder;

TEST(Crc32c, IsThatOfTheRfc) {
    EXPECT_EQ(crc32c("123456789"), 0xE3069283U);                        // the usual check value
    const std::vector<std::byte> zeros(32), ones(32, std::byte{0xFF});  // RFC 3720, B.4
    EXPECT_EQ(crc32c(zeros), 0x8A9136AAU);
    EXPECT_EQ(crc32c(ones), 0x62A8AB43U);
    EXPECT_EQ(crc32c(std::span<const std::byte>()), 0U);
}

TEST(Crc32c, IsTheSameFromTableAndInstructionAndInPieces) {
    std::mt19937 random(3);
    std::vector<std::byte> bytes(1000);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    for (std::size_t size = 0; size < 40; ++size) {
        const auto part = std::span<const std::byte>(bytes).subspan(size, size);
        EXPECT_EQ(crc32c(part), crc32c_portable(part)) << size;
        EXPECT_EQ(crc32c(std::span<const std::byte>(bytes).subspan(size), crc32c(std::span<const std::byte>(bytes).first(size))),
                  crc32c(bytes));
    }
    EXPECT_EQ(parse_checksum(checksum_text(0x0012abcdU)), 0x0012abcdU);
    for (const char* text : {"", "12abcd", "0012abcg", "0x12abcd", "+012abcd"}) EXPECT_FALSE(parse_checksum(text)) << text;
}

SafetensorsHeader two_tensors() {
    SafetensorsHeader header;
    header.metadata["format"] = "a \"quoted\" text";
    header.tensors = {{"b", Dtype::fp32, {2, 3}, 0, 24}, {"a", Dtype::bf16, {5}, 24, 34}, {"none", Dtype::fp64, {0}, 34, 34}};
    return header;
}

TEST(Safetensors, ReadsWhatItWrote) {
    const std::string head = safetensors_head(two_tensors());
    EXPECT_EQ(head.size() % 8, 0U);
    EXPECT_EQ(parse_safetensors(std::string_view(head).substr(8), 34, "file"), two_tensors());
    const std::string aligned = safetensors_head(two_tensors(), 4096);
    EXPECT_EQ(aligned.size(), 4096U);
    EXPECT_EQ(parse_safetensors(std::string_view(aligned).substr(8), 34, "file"), two_tensors());
}

TEST(BlockWriter, WritesPiecesOfAnySizeOneBehindTheOther) {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/file", head(4096, 'h');
    std::mt19937 random(5);
    std::string all(std::size_t{40} << 20, ' ');  // more than two writes
    for (std::size_t at = 0; at < all.size(); at += 4) {
        const auto word = static_cast<std::uint32_t>(random());
        std::memcpy(&all[at], &word, sizeof(word));
    }
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{16} << 20, all.size() - 5}) {
        DurableFile file(path, static_cast<std::int64_t>(head.size() + size));
        BlockWriter writer(file, 4096);
        for (std::size_t at = 0; at < size;) {
            const std::size_t piece = std::min<std::size_t>(size - at, 1 + random() % (std::size_t{9} << 20));
            writer.append(std::as_bytes(std::span(all)).subspan(at, piece));
            at += piece;
        }
        writer.finish();
        file.write(0, std::as_bytes(std::span(head)));
        file.finish();
        std::ifstream read(path, std::ios::binary);
        std::string found(std::filesystem::file_size(path), ' ');  // an iterator over a stream takes ten times as long
        read.read(found.data(), static_cast<std::streamsize>(found.size()));
        EXPECT_TRUE(read.good() && found == head + all.substr(0, size)) << size;
    }
}

TEST(Safetensors, RefusesWhatBreaksTheFormat) {
    const auto refused = [](const std::string& json, const std::string& reason, std::int64_t values = 8) {
        try {
            static_cast<void>(parse_safetensors(json, values, "some.safetensors"));
            ADD_FAILURE() << json;
        } catch (const ConfigError& error) {
            EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("some.safetensors"), HasSubstr(reason))) << json;
        }
    };
    refused("", "not valid JSON");
    refused("[1]", "no object");
    refused("{", "header of some.safetensors:1:2: not valid JSON: syntax error");
    refused("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", "nested deeper");
    refused(R"({"a":3})", "no dtype");
    refused(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,8]}})", "type");
    refused(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "list of sizes");
    refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "two data_offsets");
    refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,8]}})", "whole numbers");
    refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})", "whole numbers");
    refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,16]}})", "cut off");
    refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "3 elements in 8 bytes");
    refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", "too many");
    refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", "elements in 0 bytes");
    refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "hole");
    refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "overlap");
    refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "end at byte 4 of 8");
    refused(R"({"__metadata__":{"a":1}})", "__metadata__", 0);
}

TEST(Safetensors, TakesTimeInProportionToTheTensors) {
    const auto seconds = [](int tensors) {
        SafetensorsHeader header;
        for (int i = 0; i < tensors; ++i)
            header.tensors.push_back(
                {fmt::format("model.layers.{}.mlp.experts.{}.weight", i / 384, i % 384), Dtype::bf16, {2, 2}, 8 * i, 8 * i + 8});
        const std::string head = safetensors_head(header);
        const std::clock_t begin = std::clock();
        EXPECT_EQ(parse_safetensors(std::string_view(head).substr(8), 8 * tensors, "file").tensors.size(), std::size_t(tensors));
        return std::clock() - begin;
    };
    EXPECT_LT(tests::growth_of_time(3'000, seconds), 10);
}

TEST(Safetensors, TakesNoLengthAtItsWord) {
    const TemporaryFolder folder;
    const auto read = [&](const std::string& bytes) {
        const std::string path = folder.path() + "/file";
        std::ofstream(path, std::ios::binary) << bytes;
        try {
            static_cast<void>(read_safetensors_head(FileBytes(path, "file")));
            return std::string("read");
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
    };
    EXPECT_THAT(read(""), HasSubstr("it has 0 bytes"));
    EXPECT_THAT(read("1234567"), HasSubstr("it has 7 bytes"));
    EXPECT_THAT(read(std::string(8, '\xff') + "{}"), HasSubstr("18446744073709551615 bytes, of 2 at most"));
    EXPECT_THAT(read(std::string("\x03\0\0\0\0\0\0\0{}", 10)), HasSubstr("3 bytes, of 2 at most"));
    EXPECT_EQ(read(std::string("\x02\0\0\0\0\0\0\0{}", 10)), "read");
}

TEST(SliceText, ReadsWhatItWroteAndNothingElse) {
    SavedSlice slice{"w", {8, 4, 0, 2, 1, 2, 13}, 3, 17, 0x1234abcdU};
    const std::string text = slice_text(slice);
    const SavedSlice read = parse_slice(text, "w", "file");
    EXPECT_EQ(read.shard, slice.shard);
    EXPECT_EQ(slice_text(read), text);
    SavedSlice other = slice;
    other.checksum = 0;
    EXPECT_EQ(slice_text(other).size(), text.size());
    SavedSlice blocks = slice;
    blocks.shard = {8, 4, 0, 1, 1, 2, 13, {3, 4, 1}};
    EXPECT_EQ(parse_slice(slice_text(blocks), "w", "file").shard, blocks.shard);
    blocks.shard.blocks = {3, 4};
    EXPECT_THROW(static_cast<void>(parse_slice(slice_text(blocks), "w", "file")), ConfigError) << "blocks of 7 rows for 8";
    blocks.shard.blocks = {9, -1};
    EXPECT_THROW(static_cast<void>(parse_slice(slice_text(blocks), "w", "file")), ConfigError);
    for (const char* bad :
         {"", "rows=8", "rows=0 columns=4 axis=0 stride=2 index=1 count=2 whole_rows=13 begin=3 end=17 crc32c=1234abcd",
          "rows=8 columns=4 axis=2 stride=2 index=1 count=2 whole_rows=13 begin=3 end=17 crc32c=1234abcd",
          "rows=8 columns=4 axis=0 stride=3 index=1 count=2 whole_rows=13 begin=3 end=17 crc32c=1234abcd",
          "rows=8 columns=4 axis=0 stride=2 index=2 count=2 whole_rows=13 begin=3 end=17 crc32c=1234abcd",
          "rows=8 columns=4 axis=0 stride=2 index=1 count=2 whole_rows=17 begin=3 end=17 crc32c=1234abcd",
          "rows=8 columns=4 axis=0 stride=2 index=1 count=2 whole_rows=13 begin=3 end=33 crc32c=1234abcd",
          "rows=8 columns=4 axis=0 stride=2 index=1 count=2 whole_rows=13 begin=3 end=17 crc32c=1234abcd more=1",
          "rows=999999999999999 columns=999999999 axis=0 stride=1 index=1 count=2 whole_rows=13 begin=3 end=17 crc32c=1234abcd"}) {
        EXPECT_THROW(static_cast<void>(parse_slice(bad, "w", "file")), ConfigError) << bad;
    }
}

Manifest some_manifest() {
    Manifest manifest;
    manifest.identity.model = R"({"layers":2,"epsilon":1e-05})";
    manifest.identity.global_batch = 8;
    manifest.identity.sequence = 16;
    manifest.identity.precision = "fp32";
    manifest.identity.dropout_seed = 5;
    manifest.identity.data_checksum = 7;
    manifest.position = {12, 11};
    manifest.layout = "tp2";
    manifest.files = {{"rank-00000.safetensors", 100, 1}, {"rank-00001.safetensors", 50, 2}};
    return manifest;
}

TEST(Manifest, ReadsWhatItWroteAndSeesEveryChange) {
    const std::string text = manifest_text(some_manifest());
    const Manifest read = parse_manifest(text, "manifest.json");
    EXPECT_EQ(manifest_text(read), text);
    EXPECT_EQ(read.files, some_manifest().files);
    EXPECT_EQ(read.bytes(), 150);
    EXPECT_TRUE(differences(read.identity, some_manifest().identity).empty());
    int refused = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string broken = text;
        broken[i] = static_cast<char>(broken[i] ^ 1);
        try {
            // What does not change the JSON's meaning (a blank between its parts that becomes none) is let pass.
            EXPECT_EQ(manifest_text(parse_manifest(broken, "manifest.json")), text) << i;
        } catch (const ConfigError& error) {
            EXPECT_THAT(error.what(), HasSubstr("manifest.json"));
            ++refused;
        }
    }
    EXPECT_GT(refused, static_cast<int>(text.size()) / 2);
    for (std::size_t size = 0; size + 2 < text.size(); size += 7)
        EXPECT_THROW(static_cast<void>(parse_manifest(text.substr(0, size), "manifest.json")), ConfigError);
}

TEST(Manifest, NamesFilesOfItsOwnFolderAlone) {
    for (const std::string& name : {std::string("rank-00000.safetensors\0/x", 24), std::string("../rank"), std::string(".rank"),
                                    std::string("a\x1b"), std::string(200, 'a'), std::string()}) {
        EXPECT_FALSE(is_name_in_folder(name)) << name;
        Manifest manifest = some_manifest();
        manifest.files[0].name = name;
        EXPECT_THROW((void)parse_manifest(manifest_text(manifest), "manifest.json"), ConfigError) << name;
    }
    EXPECT_TRUE(is_name_in_folder("model-00001-of-00002.safetensors"));
    EXPECT_FALSE(is_name_in_folder(std::string("model.safetensors\0", 18)));
}

TEST(Manifest, OfFp8WithoutARecipeIsOfCurrentScaling) {
    Manifest manifest = some_manifest();
    manifest.identity.precision = "fp8";
    EXPECT_EQ(parse_manifest(manifest_text(manifest), "manifest.json").identity.precision, "fp8-current");
    manifest.identity.precision = "fp8-delayed";
    EXPECT_EQ(parse_manifest(manifest_text(manifest), "manifest.json").identity.precision, "fp8-delayed");
}

TEST(Manifest, NamesWhatAnotherTrainingHasOtherwise) {
    TrainingIdentity other = some_manifest().identity;
    other.model = R"({"layers":3,"epsilon":1e-05})";
    other.global_batch = 16;
    other.dropout_seed = 6;
    EXPECT_THAT(differences(some_manifest().identity, other),
                ElementsAre("model.layers = 2, here 3", "global batch = 8, here 16", "dropout seed = 5, here 6 (--seed)"));
}

TEST(CheckpointFolder, ListsCompleteOnesAndRemovesOnlyItsOwn) {
    const TemporaryFolder folder;
    const auto make = [&](std::int64_t step, bool complete) {
        fs::create_directories(step_folder(folder.path(), step));
        std::ofstream(step_folder(folder.path(), step) + "/rank-00000.safetensors") << "x";
        if (complete) std::ofstream(manifest_path(folder.path(), step)) << "{}";
    };
    EXPECT_THAT(complete_checkpoints(folder.path()), ElementsAre());
    EXPECT_THAT(complete_checkpoints(folder.path() + "/nothing"), ElementsAre());
    for (const std::int64_t step : {10, 20, 30}) make(step, true);
    make(5, false);
    make(25, false);
    make(40, false);
    std::ofstream(step_folder(folder.path(), 5) + "/notes.txt") << "mine";
    fs::create_directories(folder.path() + "/step-7");
    EXPECT_THAT(complete_checkpoints(folder.path()), ElementsAre(10, 20, 30));
    remove_leftovers(folder.path(), 30, 2);
    EXPECT_THAT(complete_checkpoints(folder.path()), ElementsAre(20, 30));
    EXPECT_FALSE(fs::exists(step_folder(folder.path(), 25)));
    EXPECT_TRUE(fs::exists(step_folder(folder.path(), 40)));
    EXPECT_TRUE(fs::exists(step_folder(folder.path(), 5) + "/notes.txt"));
    EXPECT_TRUE(fs::exists(folder.path() + "/step-7"));
    std::ofstream(folder.path() + "/file") << "x";
    EXPECT_THROW(static_cast<void>(complete_checkpoints(folder.path() + "/file")), ConfigError);
    EXPECT_THROW(check_writable_folder(folder.path() + "/file"), ConfigError);
    EXPECT_THROW(check_writable_folder("/proc/no/folder"), ConfigError);
    fs::create_directory_symlink(folder.path() + "/gone", folder.path() + "/dangling");
    try {
        check_writable_folder(folder.path() + "/dangling");
        ADD_FAILURE();
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(),
                    HasSubstr("dangling is a symbolic link to " + folder.path() + "/gone, which is not there; make that folder"));
    }
}

TEST(DurableFiles, SayWhatToDoAboutAFullDiskByTheirPurpose) {
    const auto refusal = [](FilePurpose purpose) -> std::string {
        try {
            DurableFile file("/dev/full", 0, purpose);
            file.write(0, std::as_bytes(std::span("x", 1)));
            return "written";
        } catch (const RunError& error) {
            return error.what();
        }
    };
    EXPECT_THAT(refusal(FilePurpose::checkpoint),
                testing::AllOf(testing::StartsWith("checkpoint file /dev/full"), HasSubstr("--checkpoint-keep")));
    EXPECT_THAT(refusal(FilePurpose::weights), testing::AllOf(testing::StartsWith("weights file /dev/full"), HasSubstr("make room"),
                                                              testing::Not(HasSubstr("--checkpoint-keep"))));
}

TEST(CheckpointFolder, NeverFollowsALink) {
    const TemporaryFolder folder, other;
    const auto make = [&](const std::string& at, std::int64_t step) {
        fs::create_directories(step_folder(at, step));
        std::ofstream(step_folder(at, step) + "/rank-00000.safetensors") << "theirs";
        std::ofstream(manifest_path(at, step)) << "{}";
    };
    make(folder.path(), 30);
    for (const std::int64_t step : {10, 20}) {
        make(other.path(), step);
        fs::create_directory_symlink(step_folder(other.path(), step), step_folder(folder.path(), step));
    }
    fs::remove(manifest_path(other.path(), 20));  // looks like what a cut off save leaves
    remove_leftovers(folder.path(), 30, 1);
    for (const std::int64_t step : {10, 20}) {
        EXPECT_TRUE(fs::exists(step_folder(other.path(), step) + "/rank-00000.safetensors")) << step;
        EXPECT_TRUE(fs::is_symlink(step_folder(folder.path(), step))) << step;
    }
    EXPECT_TRUE(fs::exists(manifest_path(other.path(), 10)));
    try {
        static_cast<void>(complete_checkpoints(folder.path()));
        ADD_FAILURE() << "a link was taken for a checkpoint";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(folder.path() + "/step-0000000000"),
                                                 HasSubstr("is a symbolic link (to " + other.path() + "/step-0000000000"),
                                                 HasSubstr("copy what it stands for (cp -r), or remove the link")));
    }
    // The folder as a whole may lie elsewhere.
    const std::string alias = other.path() + "/alias";
    for (const std::int64_t step : {10, 20}) fs::remove(step_folder(folder.path(), step));
    fs::create_directory_symlink(folder.path(), alias);
    EXPECT_THAT(complete_checkpoints(alias), ElementsAre(30));
}

}  // namespace
}  // namespace mgplan::runtime::checkpoint_files_test
