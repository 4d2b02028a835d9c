# Choices about the compiler and linker that hold for every target: ccache, lld, sanitizers.

find_program(MGPLAN_CCACHE ccache)
mark_as_advanced(MGPLAN_CCACHE)
if(MGPLAN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MGPLAN_CCACHE})
endif()

include(CheckLinkerFlag)
find_program(MGPLAN_LLD ld.lld)
mark_as_advanced(MGPLAN_LLD)
if(MGPLAN_LLD)
  check_linker_flag(CXX -fuse-ld=lld MGPLAN_LINKER_TAKES_LLD)
  if(MGPLAN_LINKER_TAKES_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# MGPLAN_SANITIZE: what -fsanitize= takes, e.g. "address,undefined" or "thread". A finding ends the program, so that no
# test passes beside one.
set(MGPLAN_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
if(MGPLAN_SANITIZE)
  add_compile_options(-fsanitize=${MGPLAN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  add_link_options(-fsanitize=${MGPLAN_SANITIZE})
endif()
