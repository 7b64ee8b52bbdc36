# One folder under src/ is one target. hvd_library(base) makes hvd_base from src/base/*.cc; DEPENDS lists the folders it
# may include. Includes are written "folder/file.h" and found through one link per folder, so that an include against
# the arrows of docs/architecture.md does not compile.
function(hvd_library folder)
  cmake_parse_arguments(ARG "" "" "DEPENDS;SOURCES;LINK" ${ARGN})
  string(REPLACE "/" "_" name "${folder}")
  if(NOT ARG_SOURCES)
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*.cc")
  endif()
  set(links "${PROJECT_BINARY_DIR}/include/${name}")
  get_filename_component(parent "${links}/${folder}" DIRECTORY)
  file(MAKE_DIRECTORY "${parent}")
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/src/${folder}" "${links}/${folder}" SYMBOLIC)
  add_library(hvd_${name} STATIC ${ARG_SOURCES})
  target_include_directories(hvd_${name} PUBLIC "${links}")
  foreach(dependency IN LISTS ARG_DEPENDS)
    string(REPLACE "/" "_" dependency "${dependency}")
    target_link_libraries(hvd_${name} PUBLIC hvd_${dependency})
  endforeach()
  target_link_libraries(hvd_${name} PUBLIC hvd_flags ${ARG_LINK})
endfunction()

# The headers that all test files use, precompiled once for all test programs: same compile options as hvd_test.
function(hvd_test_headers)
  file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/test_headers.cc" "")
  add_executable(test_headers EXCLUDE_FROM_ALL "${CMAKE_CURRENT_BINARY_DIR}/test_headers.cc")  # -fPIE, as they are
  target_link_libraries(test_headers PRIVATE hvd_flags GTest::gtest_main GTest::gmock)
  target_compile_options(test_headers PRIVATE -O0 -ffp-contract=off)
  if(HVD_SANITIZE MATCHES undefined)
    target_compile_options(test_headers PRIVATE -fno-sanitize=undefined)
  endif()
  foreach(header IN ITEMS gmock/gmock.h gtest/gtest.h functional map string thread vector)
    target_precompile_headers(test_headers PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:<${header}$<ANGLE-R>>")
  endforeach()
endfunction()

# A GoogleTest program tests/cpp/<folder>/*.cc; suites.cmake makes ctest's entries of its suites.
function(hvd_test folder)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  string(REPLACE "/" "_" name "${folder}")
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cpp/${folder}/*.cc")
  add_executable(test_${name} ${sources})
  set_target_properties(test_${name} PROPERTIES UNITY_BUILD OFF)  # every test file has its own names
  target_include_directories(test_${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/cpp")
  target_link_libraries(test_${name} PRIVATE ${ARG_LINK} GTest::gtest_main GTest::gmock)
  # Most of the time would go into reading GoogleTest's headers, and into optimising and checking its matchers. The
  # folders under test are compiled as always.
  target_compile_options(test_${name} PRIVATE -O0)
  if(HVD_SANITIZE MATCHES undefined)
    target_compile_options(test_${name} PRIVATE -fno-sanitize=undefined)
  endif()
  # The objects of the library hold code for a link as a whole, too; a test program does without that.
  target_link_options(test_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-lto>)
  target_compile_options(test_${name} PRIVATE -ffp-contract=off)  # as the precompiled header, see hvd_test_headers
  target_precompile_headers(test_${name} REUSE_FROM test_headers)
  set(listed "${CMAKE_CURRENT_BINARY_DIR}/test_${name}_suites.cmake")
  file(GENERATE OUTPUT "${listed}" CONTENT "set(folder \"${folder}\")
set(program \"$<TARGET_FILE:test_${name}>\")
set(emulator \"${CMAKE_CROSSCOMPILING_EMULATOR}\")
set(directory \"${CMAKE_CURRENT_BINARY_DIR}\")
include(\"${PROJECT_SOURCE_DIR}/cmake/suites.cmake\")
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${listed}")
endfunction()
