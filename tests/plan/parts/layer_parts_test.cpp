#include "plan/parts/layer_parts.hpp"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mgplan {
namespace {

using testing::HasSubstr;

std::string problems_of(const LayerPart& part) {
    Problems problems;
    check_part(part, "here", problems);
    try {
        problems.throw_if_any();
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

TEST(LayerParts, NamesStandOnce) {
    std::set<std::string_view> names;
    for (const PartKind& kind : part_kinds()) {
        EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
        LayerPart part{std::string(kind.name), {}};
        for (const PartSize& size : kind.sizes) {
            if (size.fallback < 0) part.sizes[std::string(size.name)] = std::max<std::int64_t>(size.low, 2);
        }
        EXPECT_EQ(problems_of(part), "") << kind.name;
    }
}

TEST(LayerParts, LeaveOutSizesThatTheirFallbacksSay) {
    LayerPart part{"norm", {{"width", 4}}};
    EXPECT_EQ(part_size(part, "copies"), 1);
    state_size(part, "copies", 1);
    EXPECT_FALSE(part.sizes.contains("copies"));
    state_size(part, "copies", 2);
    EXPECT_EQ(part_size(part, "copies"), 2);
    EXPECT_TRUE(has_size(part, "behind"));
    EXPECT_FALSE(has_size(part, "window"));
}

TEST(LayerParts, WrongOnesAreRefusedByName) {
    EXPECT_THAT(problems_of({"mamba3", {}}), HasSubstr("part 'mamba3' is not known; use norm"));
    EXPECT_THAT(problems_of({"mlp", {}}), HasSubstr("size 'width' of part 'mlp' is missing"));
    EXPECT_THAT(problems_of({"mlp", {{"width", 0}}}), HasSubstr("width of part 'mlp' = 0 is out of range"));
    EXPECT_THAT(problems_of({"mlp", {{"width", 4}, {"depth", 1}}}), HasSubstr("part 'mlp' has no size 'depth'"));
}

}  // namespace
}  // namespace mgplan
