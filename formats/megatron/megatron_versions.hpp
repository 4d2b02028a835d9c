#pragma once
// Versions of Megatron-LM that commands are written for, and the flags that not all of them have.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "plan/text/enum_set.hpp"

namespace mgplan::formats {

enum class MegatronVersion : std::uint8_t {
    v0_19,  ///< megatron-core 0.19.2 as PyPI has it
    v0_20,  ///< branch main at d98e8a64, whose megatron-core calls itself 0.20.0
    dev,    ///< branch dev at d48bd6be
};
using MegatronVersions = EnumSet<MegatronVersion>;

/// The newest version that exported commands were held against.
inline constexpr MegatronVersion kNewestMegatron = MegatronVersion::v0_20;
inline constexpr MegatronVersions kReleasedMegatrons{MegatronVersion::v0_19, MegatronVersion::v0_20};
inline constexpr MegatronVersions kAllMegatrons{MegatronVersion::v0_19, MegatronVersion::v0_20, MegatronVersion::dev};

struct MegatronVersionName {
    MegatronVersion version;
    std::string_view name;    ///< as --megatron takes it
    std::string_view source;  ///< release or commit
};
/// All of them, oldest first.
[[nodiscard]] std::span<const MegatronVersionName> megatron_versions();
[[nodiscard]] const MegatronVersionName& name_of(MegatronVersion version);
/// kNewestMegatron, or the oldest one of a set without it that is not empty.
[[nodiscard]] const MegatronVersionName& newest_of(const MegatronVersions& versions);
/// "0.19, 0.20"; "none of 0.19, 0.20, dev" for an empty set.
[[nodiscard]] std::string versions_text(const MegatronVersions& versions);

/// Behaviour of a command without a flag that its version lacks.
enum class WithoutFlag : std::uint8_t {
    refuse,  ///< the plan cannot be trained there
    omit,    ///< it is trained with the version's own value, which is named as lost
};

/// Flags, with "--" left out and separated by blanks, that some version's parser does not have.
struct VersionedFlags {
    MegatronVersions have;
    WithoutFlag without;
    std::string_view names;
};
/// Nothing for flags that all versions have, and for those that mgplan does not have in its tables.
[[nodiscard]] std::optional<VersionedFlags> versions_of_flag(std::string_view flag);

}  // namespace mgplan::formats
